use super::*;

mod checks;
mod documented;

use gateway_core::admission::Queueing;
use gateway_core::policy::PolicySettings;
use gateway_core::pool::Scraping;
use gateway_core::route::Discovered;

/// A pool named `a` with one endpoint, and `more` lines at its level.
fn pool(more: &str) -> String {
    let more = more.lines().fold(String::new(), |text, line| text + "  " + line + "\n");
    format!("pools:\n- name: a\n  modelName: m\n  endpoints: [\"10.0.0.1\"]\n{more}")
}

fn parse(text: &str) -> Config {
    Config::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn refused(text: &str) -> ConfigError {
    Config::parse(text).err().unwrap_or_else(|| panic!("accepted\n{text}"))
}

const EXAMPLE: &str = include_str!("../../../deploy/examples/gateway.yaml");

#[test]
fn a_small_file_gets_the_documented_defaults() {
    let config = parse(&pool(""));
    assert_eq!(config.listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!(config.admin, "127.0.0.1:9090".parse().unwrap());
    assert!(matches!(config.auth, Auth::None));
    assert_eq!((config.workers, config.limits.head_bytes), (None, 65_536));
    let pool = &config.pools[0];
    assert_eq!(pool.endpoints[0].name, "10.0.0.1:8000");
    assert_eq!(pool.settings.policy, PolicySettings::default());
    assert_eq!(pool.settings.scraping, Scraping::On);
    assert_eq!(pool.metrics.as_ref().unwrap().interval, Duration::from_millis(50));
    assert_eq!(pool.timeouts, Timeouts::default());
    assert_eq!(pool.max_request_body_bytes, 256 << 20);
    assert_eq!(pool.retry, gateway_core::retry::RetrySettings::default());
    assert_eq!(pool.admission.queueing, Queueing::Off);
    assert_eq!(pool.settings.max_in_flight, None);
}

#[test]
fn the_example_is_valid_and_its_dump_reads_back_the_same() {
    let config = parse(EXAMPLE);
    assert!(config.pools.len() > 1);
    let dump = config.to_yaml();
    assert!(!dump.contains("change-me"), "{dump}");
    let again = parse(&dump);
    assert_eq!(again.to_yaml(), dump);
    assert_eq!(again.pools.len(), config.pools.len());
}

#[test]
fn a_dump_shows_what_holds() {
    let dump = parse(&format!("timeouts: {{ idle: 7s }}\n{}", pool(""))).to_yaml();
    assert!(dump.contains("idle: 7s"), "{dump}");
    assert!(dump.contains("policy: predicted") && dump.contains("harmPrice: 0.02"), "{dump}");
    assert!(parse(&pool("policy: weighted")).to_yaml().contains("prefix: 3"));
    assert_eq!(parse(&dump).pools[0].timeouts.idle, Duration::from_secs(7));
}

#[test]
fn keys_do_not_show() {
    let text = format!(
        "auth: {{ apiKeys: [ {{ name: a, key: hunter2 }} ] }}\n{}",
        pool("apiKey: { key: hunter3 }")
    );
    let config = parse(&text);
    for shown in [config.to_yaml(), format!("{config:?}")] {
        assert!(!shown.contains("hunter"), "{shown}");
    }
    let Auth::ApiKeys(keys) = &config.auth else { panic!("{:?}", config.auth) };
    assert_eq!(&*keys[0].key, "hunter2");
    assert_eq!(config.pools[0].api_key.as_deref(), Some("hunter3"));
}

#[test]
fn a_key_in_the_wrong_place_is_not_quoted_in_the_error() {
    for text in [
        "auth: { apiKeys: [ { name: a, key: [hunter2] } ] }\n",
        "auth: { apiKeys: [hunter2] }\n",
        "auth: { apiKeys: hunter2 }\n",
        "auth: [hunter2]\n",
        "auth: hunter2\n",
    ] {
        let error = refused(&format!("{text}{}", pool(""))).to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn sections_can_be_turned_off() {
    let config = parse(&pool("metrics: off\nhealth: off\nretry: off\nejection: off"));
    let pool = &config.pools[0];
    assert!(pool.metrics.is_none() && pool.health.is_none());
    assert_eq!(pool.settings.scraping, Scraping::Off);
    assert_eq!(pool.retry.retries, 0);
    assert_eq!(pool.settings.ejection.consecutive_failures, 0);
    let again = parse(&config.to_yaml());
    assert!(again.pools[0].metrics.is_none());
}

#[test]
fn zero_turns_off_the_timeouts_that_may_be_off() {
    let config = parse(&pool("timeouts: { firstByte: 0s, idle: 0s, request: 0s }"));
    let timeouts = config.pools[0].timeouts;
    assert_eq!(timeouts.request, Timeouts::NEVER);
    assert_eq!((timeouts.first_byte, timeouts.idle), (Timeouts::NEVER, Timeouts::NEVER));
    assert_eq!(parse(&pool("routeTimeout: 5s")).pools[0].timeouts.request, Duration::from_secs(5));
}

#[test]
fn weights_imply_the_weighted_policy() {
    let config = parse(&pool("weights: { queue: 1, lru: 0.5 }"));
    let PolicySettings::Weighted(weights) = &config.pools[0].settings.policy else { panic!() };
    assert_eq!((weights.queue, weights.no_hit_lru, weights.prefix), (1.0, 0.5, 0.0));
    let config = parse(&pool("policy: weighted"));
    let PolicySettings::Weighted(weights) = &config.pools[0].settings.policy else { panic!() };
    assert_eq!((weights.queue, weights.kv_cache, weights.prefix), (2.0, 2.0, 3.0));
}

#[test]
fn flow_control_is_on_once_written() {
    let pool_of = |text: &str| parse(&pool(text)).pools.remove(0);
    assert_eq!(pool_of("flowControl: {}").admission.queueing, Queueing::On);
    let bounded = pool_of("flowControl: { maxInFlightPerEndpoint: 8, queueDepth: 2 }");
    assert_eq!(bounded.settings.max_in_flight, Some(8));
    assert_eq!(bounded.settings.saturation.queue_depth, 2);
    let band = pool_of("flowControl: { bands: { sheddable: { timeout: 1s, order: edf } } }");
    assert_eq!(band.admission.bands.sheddable.timeout, Duration::from_secs(1));
    assert_eq!(band.admission.bands.critical.timeout, Duration::from_mins(1));
}

#[test]
fn names_become_routes() {
    let text = format!(
        "{}rewrites:\n- matches: [ {{ model: {{ value: gpt-4 }} }} ]\n  targets: [ {{ modelRewrite: m2 }} ]\n\
         objectives: {{ batch: -1 }}\n",
        pool("aliases: [m2]\nloraAdapters: [sql]"),
    );
    let config = parse(&text);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut resolve =
        |name: &str| config.routes.resolve(Some(name), &Discovered::default(), &mut rng);
    assert_eq!(&*resolve("gpt-4").unwrap().target, "m");
    assert_eq!(resolve("sql").unwrap().adapter.as_deref(), Some("sql"));
    assert!(resolve("nope").is_err());
    assert_eq!((config.priority_of("batch"), config.priority_of("unknown")), (-1, 0));
}

#[test]
fn a_lone_pool_without_a_model_takes_any_name() {
    let text = "pools: [ { name: a, endpoints: [\"e:1\"] } ]";
    let config = parse(text);
    let mut rng = fastrand::Rng::with_seed(1);
    let route = config.routes.resolve(Some("x"), &Discovered::default(), &mut rng).unwrap();
    assert_eq!((route.pool, &*route.target, route.rename), (0, "x", false));
}

#[test]
fn thousands_of_endpoints_are_no_attack() {
    let endpoints: Vec<String> =
        (0..40_000).map(|n| format!("  - http://engine-{n}.engines.svc:8000")).collect();
    let text =
        format!("pools:\n- name: a\n  modelName: m\n  endpoints:\n{}\n", endpoints.join("\n"));
    assert!(text.len() > 1 << 20);
    assert_eq!(parse(&text).pools[0].endpoints.len(), 40_000);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load(Path::new("/nonexistent/gateway.yaml")).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/gateway.yaml: "));
    assert!(std::error::Error::source(&error).is_some());
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(pools|name|listen|auth|[-:{}\\[\\]\"',&*!|>?%@#a0 \\n\\t]){0,60}") {
        let _ = Config::parse(&text);
    }
}
