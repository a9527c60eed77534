//! A report on its way: JSON, so that `curl` shows it.
//!
//! ```json
//! {"version": 1, "instance": "9f86d081884c7d65", "cursor": "9f86d081884c7d65.60303ae22b998861.42",
//!  "pools": [{"name": "chat", "whole": false, "blockTokens": 16, "endpoints": ["10.0.0.1:8000"],
//!    "news": [{"request": 17, "ageMicros": 21000, "what": {"sent": {"endpoint": 0,
//!      "promptTokens": 900, "uncachedTokens": 100, "streamed": true, "blocks": "60303ae22b998861"}}},
//!     {"request": 16, "ageMicros": 900, "what": "firstToken"}]}]}
//! ```
//!
//! Block hashes are written one after the other, 16 hexadecimal digits each. The cursor
//! means something to its writer only: which news of which pools the reader has. Fields that
//! a reader does not know are ignored; what it would misunderstand gets another version.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::peer::{Event, News, PeerId, Report, Scope, Sent};
use gateway_core::request::Answer;
use serde::{Deserialize, Serialize};

use crate::pool::Pool;

/// Where reports are served.
pub(super) const PATH: &str = "/peer/v1";

const VERSION: u32 = 1;

/// Hexadecimal digits of a block's hash.
const DIGITS: usize = 16;

/// Block hashes of one request that are read; nobody tells as many.
const MOST_BLOCKS: usize = 65_536;

/// Why a page is no report.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("hashes of blocks are not {DIGITS} hexadecimal digits each")]
    Blocks,
    #[error("its cursor is not one of ours: digits and dots")]
    Cursor,
    #[error("news name endpoint {0}, which the report does not have")]
    Endpoint(usize),
    #[error("its instance is not {DIGITS} hexadecimal digits")]
    Instance,
    #[error("it is no peer report")]
    Syntax(#[from] serde_json::Error),
    #[error("it has version {0} of peer reports, and this gateway reads version {VERSION}")]
    Version(u32),
}

/// What a peer has told.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    pub(super) instance: PeerId,
    pub(super) cursor: String,
    /// By the pool's name.
    pub(super) pools: Vec<(String, Report)>,
}

/// The report as it is written.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    version: u32,
    instance: String,
    cursor: String,
    pools: Vec<PoolPage>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolPage {
    name: String,
    whole: bool,
    block_tokens: u32,
    endpoints: Vec<Arc<str>>,
    news: Vec<NewsPage>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct NewsPage {
    request: u64,
    age_micros: u64,
    what: What,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
enum What {
    Ended,
    FirstToken,
    Sent(SentPage),
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SentPage {
    /// Place in the pool's list.
    endpoint: usize,
    prompt_tokens: u32,
    uncached_tokens: u32,
    streamed: bool,
    blocks: String,
}

/// The report of `pools` for a reader with this cursor.
pub(super) fn page(instance: PeerId, pools: &[Arc<Pool>], cursor: &str) -> Page {
    let stamp = stamp(instance, pools);
    let numbers = cursor.strip_prefix(&stamp).unwrap_or_default();
    let mut numbers = numbers.split('.').skip(1).map(|number| number.parse().unwrap_or(0));
    let mut cursor = stamp;
    let pools = pools
        .iter()
        .map(|pool| {
            let report = pool.report(numbers.next().unwrap_or(0));
            // Writing to a string cannot fail.
            let _ = write!(cursor, ".{}", report.next);
            PoolPage::of(pool.name(), report)
        })
        .collect();
    Page { version: VERSION, instance: format!("{:016x}", instance.0), cursor, pools }
}

/// What cursors begin with; another one when their numbers mean something else.
fn stamp(instance: PeerId, pools: &[Arc<Pool>]) -> String {
    let mut names = Vec::new();
    for pool in pools {
        names.extend_from_slice(pool.name().as_bytes());
        names.push(0);
    }
    format!("{:016x}.{:016x}", instance.0, gateway_core::request::session_hash(&names))
}

impl PoolPage {
    fn of(name: &str, report: Report) -> Self {
        let mut endpoints: Vec<Arc<str>> = Vec::new();
        let mut place = |endpoint: &Arc<str>| {
            endpoints.iter().position(|known| known == endpoint).unwrap_or_else(|| {
                endpoints.push(Arc::clone(endpoint));
                endpoints.len() - 1
            })
        };
        let news = report.news.into_iter().map(|news| NewsPage {
            request: news.request,
            age_micros: u64::try_from(news.age.as_micros()).unwrap_or(u64::MAX),
            what: match news.what {
                Event::Ended => What::Ended,
                Event::FirstToken => What::FirstToken,
                Event::Sent(sent) => What::Sent(SentPage {
                    endpoint: place(&sent.endpoint),
                    prompt_tokens: sent.prompt_tokens,
                    uncached_tokens: sent.uncached_tokens,
                    streamed: sent.answer == Answer::Streamed,
                    blocks: written(&sent.blocks),
                }),
            },
        });
        let news = news.collect();
        Self {
            name: name.to_owned(),
            whole: report.scope == Scope::Whole,
            block_tokens: report.block_tokens,
            endpoints,
            news,
        }
    }

    fn report(self) -> Result<Report, WireError> {
        let endpoints = self.endpoints;
        let news = self.news.into_iter().map(|news| {
            Ok(News {
                request: news.request,
                age: Duration::from_micros(news.age_micros),
                what: match news.what {
                    What::Ended => Event::Ended,
                    What::FirstToken => Event::FirstToken,
                    What::Sent(sent) => Event::Sent(sent.event(&endpoints)?),
                },
            })
        });
        Ok(Report {
            // The reader keeps the whole cursor instead.
            next: 0,
            scope: if self.whole { Scope::Whole } else { Scope::Since },
            block_tokens: self.block_tokens,
            news: news.collect::<Result<_, WireError>>()?,
        })
    }
}

impl SentPage {
    fn event(self, endpoints: &[Arc<str>]) -> Result<Sent, WireError> {
        let endpoint = endpoints.get(self.endpoint).ok_or(WireError::Endpoint(self.endpoint))?;
        Ok(Sent {
            endpoint: Arc::clone(endpoint),
            prompt_tokens: self.prompt_tokens,
            uncached_tokens: self.uncached_tokens.min(self.prompt_tokens),
            answer: if self.streamed { Answer::Streamed } else { Answer::Whole },
            blocks: blocks(&self.blocks)?,
        })
    }
}

/// Reads a report.
pub(super) fn read(body: &[u8]) -> Result<Told, WireError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } = serde_json::from_slice(body)?;
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    let page: Page = serde_json::from_slice(body)?;
    // It becomes a part of the next question.
    if !page.cursor.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'.') {
        return Err(WireError::Cursor);
    }
    let pools = page.pools.into_iter().map(|pool| Ok((pool.name.clone(), pool.report()?)));
    Ok(Told {
        instance: PeerId(hash(page.instance.as_bytes()).ok_or(WireError::Instance)?),
        cursor: page.cursor,
        pools: pools.collect::<Result<_, WireError>>()?,
    })
}

fn written(blocks: &[u64]) -> String {
    let mut text = String::with_capacity(blocks.len() * DIGITS);
    for block in blocks {
        // Writing to a string cannot fail.
        let _ = write!(text, "{block:016x}");
    }
    text
}

fn blocks(text: &str) -> Result<Arc<[u64]>, WireError> {
    let (hashes, rest) = text.as_bytes().as_chunks::<DIGITS>();
    if !rest.is_empty() || hashes.len() > MOST_BLOCKS {
        return Err(WireError::Blocks);
    }
    hashes.iter().map(|digits| hash(digits).ok_or(WireError::Blocks)).collect()
}

fn hash(digits: &[u8]) -> Option<u64> {
    let is_hash = digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_hash)?;
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event() -> impl Strategy<Value = Event> {
        let sent = (any::<u32>(), any::<bool>(), prop::collection::vec(any::<u64>(), 0..9), 0..3);
        prop_oneof![
            Just(Event::Ended),
            Just(Event::FirstToken),
            sent.prop_map(|(tokens, streamed, blocks, endpoint)| Event::Sent(Sent {
                endpoint: format!("10.0.0.{endpoint}:8000").into(),
                prompt_tokens: tokens,
                uncached_tokens: tokens / 2,
                answer: if streamed { Answer::Streamed } else { Answer::Whole },
                blocks: blocks.into(),
            })),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            events in prop::collection::vec((any::<u64>(), any::<u32>(), event()), 0..9),
            whole in any::<bool>(),
        ) {
            let news = events.into_iter().map(|(request, micros, what)| {
                News { request, age: Duration::from_micros(micros.into()), what }
            });
            let report = Report {
                next: 0,
                scope: if whole { Scope::Whole } else { Scope::Since },
                block_tokens: 16,
                news: news.collect(),
            };
            let page = Page {
                version: VERSION,
                instance: format!("{:016x}", 7),
                cursor: "c".to_owned(),
                pools: vec![PoolPage::of("p", report.clone())],
            };
            let told = read(&serde_json::to_vec(&page).unwrap()).unwrap();
            prop_assert_eq!(told.instance, PeerId(7));
            prop_assert_eq!(told.pools, [("p".to_owned(), report)]);
        }

        #[test]
        fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&body);
        }
    }

    #[test]
    fn what_it_would_misunderstand_is_refused_by_its_version() {
        let error = read(br#"{"version": 2, "pools": "elsewhere"}"#).unwrap_err();
        assert!(error.to_string().contains("version 2"), "{error}");
    }

    #[test]
    fn a_cursor_cannot_smuggle_anything_into_the_next_question() {
        for cursor in [" HTTP/1.1", "\\r\\n", "?", "/", "&"] {
            let page = format!(
                "{{\"version\":1,\"instance\":\"00000000000000aa\",\"cursor\":\"{cursor}\",\"pools\":[]}}"
            );
            assert!(matches!(read(page.as_bytes()), Err(WireError::Cursor)), "{page}");
        }
    }

    #[test]
    fn hashes_and_endpoints_have_to_be_there() {
        let page = |endpoint: u32, blocks: &str| {
            format!(
                "{{\"version\":1,\"instance\":\"00000000000000aa\",\"cursor\":\"\",\"pools\":[{{\
                 \"name\":\"p\",\"whole\":true,\"blockTokens\":16,\"endpoints\":[\"e\"],\"news\":[{{\
                 \"request\":1,\"ageMicros\":1,\"what\":{{\"sent\":{{\"endpoint\":{endpoint},\
                 \"promptTokens\":1,\"uncachedTokens\":9,\"streamed\":true,\
                 \"blocks\":\"{blocks}\"}}}}}}]}}]}}"
            )
        };
        let told = read(page(0, "00000000000000ff").as_bytes()).unwrap();
        let Event::Sent(sent) = &told.pools[0].1.news[0].what else { panic!("{told:?}") };
        assert_eq!((sent.uncached_tokens, &*sent.blocks), (1, &[255][..]));
        for (endpoint, blocks) in [(1, ""), (0, "0"), (0, "+000000000000001"), (0, "zz")] {
            read(page(endpoint, blocks).as_bytes()).unwrap_err();
        }
    }
}
