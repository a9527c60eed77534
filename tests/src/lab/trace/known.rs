//! The public traces by name, each with a sample of its kind to stand in for it.
//!
//! Public files are not part of this repository. Who has them names their directory;
//! who has not gets a generated sample, and is told so by the [`Origin`].

use std::path::Path;

use super::{Format, Trace, TraceError};

/// Environment variable that names the directory of public traces.
pub const DIRECTORY_VARIABLE: &str = "LAB_TRACES";

/// A public trace.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// File name in the directory of public traces.
    pub file: &'static str,
    /// Its format.
    pub format: Format,
    /// Where it is published, and under which licence.
    pub source: &'static str,
    /// Text of the same format that may stand in for it.
    sample: &'static str,
}

/// Where a trace came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// The public file.
    Public,
    /// The generated sample.
    Sample,
}

const AZURE: &str = "Azure/AzurePublicDataset, AzureLLMInferenceTrace 2023, CC-BY";
const MOONCAKE: &str = "kvcache-ai/Mooncake, FAST25 traces, Apache-2.0";
const AZURE_SAMPLE: &str = include_str!("../../../traces/azure-sample.csv");
const MOONCAKE_SAMPLE: &str = include_str!("../../../traces/mooncake-sample.jsonl");

/// All of them.
pub const KNOWN: [Known; 4] = [
    Known {
        name: "azure-code",
        file: "azure_llm_2023_code.csv",
        format: Format::Azure,
        source: AZURE,
        sample: AZURE_SAMPLE,
    },
    Known {
        name: "azure-conversation",
        file: "azure_llm_2023_conv.csv",
        format: Format::Azure,
        source: AZURE,
        sample: AZURE_SAMPLE,
    },
    Known {
        name: "mooncake-conversation",
        file: "mooncake_conversation_trace.jsonl",
        format: Format::Mooncake,
        source: MOONCAKE,
        sample: MOONCAKE_SAMPLE,
    },
    Known {
        name: "mooncake-synthetic",
        file: "mooncake_synthetic_trace.jsonl",
        format: Format::Mooncake,
        source: MOONCAKE,
        sample: MOONCAKE_SAMPLE,
    },
];

impl Known {
    /// The trace of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.name == name)
    }

    /// The public file when `directory` has it, else the sample.
    ///
    /// # Errors
    ///
    /// [`TraceError`] when the file is there but cannot be used.
    pub fn load(&self, directory: Option<&Path>) -> Result<(Trace, Origin), TraceError> {
        let path = directory.map(|directory| directory.join(self.file));
        if let Some(path) = path.filter(|path| path.exists()) {
            return Ok((Trace::read(&path, self.format)?, Origin::Public));
        }
        let sample = Trace::parse(self.sample, self.format);
        let trace = sample.map_err(|source| TraceError::Line {
            path: format!("the sample for {}", self.name),
            source,
        })?;
        Ok((trace, Origin::Sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stand_in_for_files_that_are_not_there() {
        for known in KNOWN {
            let (trace, origin) = known.load(Some(Path::new("no-such-directory"))).unwrap();
            assert_eq!(origin, Origin::Sample);
            assert!(trace.entries.len() >= 300, "{}: {}", known.name, trace.entries.len());
            let has_blocks = trace.entries.iter().all(|entry| !entry.blocks.is_empty());
            assert_eq!(has_blocks, known.format == Format::Mooncake, "{}", known.name);
        }
    }

    #[test]
    fn public_files_are_read_whole_when_they_are_there() {
        let Some(directory) = std::env::var_os(DIRECTORY_VARIABLE) else { return };
        for known in KNOWN {
            let (trace, origin) = known.load(Some(Path::new(&directory))).unwrap();
            let lines = std::fs::read_to_string(Path::new(&directory).join(known.file)).unwrap();
            let header = usize::from(known.format == Format::Azure);
            assert_eq!(origin, Origin::Public);
            assert_eq!(trace.entries.len(), lines.lines().count() - header, "{}", known.name);
        }
    }
}
