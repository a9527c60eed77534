//! A configuration is valid or refused with a place inside the text.
#![no_main]

use inference_gateway::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Config::parse(text) {
        Ok(config) => assert!(!config.to_yaml().is_empty()),
        Err(error) => {
            assert!(!error.problem().is_empty());
            // A lone CR ends a line of YAML too, and so does the end of the text.
            let lines = text.matches(['\n', '\r']).count() as u64 + 2;
            assert!(error.line().is_none_or(|line| (1..=lines).contains(&line)), "{error}");
        }
    }
});
