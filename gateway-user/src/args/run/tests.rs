use clap::Parser;
use gateway_core::admission::Queueing;
use gateway_core::policy::PolicySettings;

use super::*;
use crate::args::{Arguments, Command};
use crate::config::{Auth, Level, LogFormat};

fn flags(line: &str) -> Result<RunFlags, clap::Error> {
    let words = ["inference-gateway", "run"].into_iter().chain(line.split_whitespace());
    Arguments::try_parse_from(words).map(|arguments| match arguments.command {
        Command::Run(flags) => *flags,
        other => panic!("{other:?}"),
    })
}

fn start(line: &str) -> Started {
    flags(line).unwrap().start().unwrap()
}

#[test]
fn worker_urls_are_all_it_takes() {
    let Started { config, file, notes } = start("--worker-urls http://a:1 b:2 --worker-urls c");
    let pool = &config.pools[0];
    let names: Vec<_> = pool.endpoints.iter().map(|endpoint| endpoint.name.as_str()).collect();
    assert_eq!(names, ["a:1", "b:2", "c:8000"]);
    assert_eq!((pool.names.model.as_ref(), file, notes.len()), (None, None, 0));
    assert_eq!(pool.settings.policy, PolicySettings::default());
    assert_eq!(config.listen, ["127.0.0.1:8080".parse().unwrap()]);
}

#[test]
fn flags_give_what_the_same_file_gives() {
    let started = start(
        "--worker-urls a --model m --engine-type sglang --policy power_of_two \
         --request-timeout-secs 7 --max-payload-size 1MiB --retry-max-retries 1 \
         --cb-failure-threshold 9 --health-check-interval-secs 3 --health-check-endpoint /ok \
         --host ::1 --port 30000 --log-json --log-level warn --workers 2",
    );
    let file = "listen: \"[::1]:30000\"\nlog: { level: warn, format: json }\nworkers: 2\npools:\n\
         - name: default\n  modelName: m\n  engineType: sglang\n  policy: power_of_two\n  \
         endpoints: [a]\n  timeouts: { request: 7s }\n  maxRequestBodyBytes: 1MiB\n  \
         retry: { attempts: 1 }\n  ejection: { consecutiveFailures: 9 }\n  \
         health: { interval: 3s, path: /ok }\n";
    assert_eq!(started.config.to_yaml(), Config::parse(file).unwrap().to_yaml());
}

#[test]
fn a_door_is_not_opened_by_accident() {
    let error = flags("--worker-urls a --host 0.0.0.0").unwrap().start().unwrap_err();
    assert!(error.to_string().contains("auth: none"), "{error}");
    let open = start("--worker-urls a --host 0.0.0.0 --auth-none").config;
    assert!(matches!(open.auth, Auth::None));
    let closed = start("--worker-urls a --host 0.0.0.0 --api-key hunter2").config;
    let Auth::ApiKeys(keys) = &closed.auth else { panic!("{:?}", closed.auth) };
    assert_eq!(&*keys[0].key, "hunter2");
}

#[test]
fn a_port_that_kubernetes_sets_for_a_service_is_not_meant_for_us() {
    let config = start("--worker-urls a --port tcp://10.96.0.7:8080").config;
    assert_eq!(config.listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert!(flags("--worker-urls a --port 70000").is_err());
}

#[test]
fn keys_on_the_command_line_do_not_show() {
    let flags = flags("--worker-urls a --api-key hunter2 --worker-api-key hunter3").unwrap();
    let started = flags.start().unwrap();
    for shown in [format!("{flags:?}"), format!("{started:?}"), started.config.to_yaml()] {
        assert!(!shown.contains("hunter"), "{shown}");
    }
    assert_eq!(started.config.pools[0].api_key.as_deref(), Some("hunter3"));
}

#[test]
fn concurrency_is_shared_out_among_the_workers() {
    let line = "--worker-urls a b c --max-concurrent-requests 100 --queue-size 7 \
                --queue-timeout-secs 9";
    let Started { config, notes, .. } = start(line);
    let pool = &config.pools[0];
    assert_eq!(pool.settings.max_in_flight, Some(34));
    assert_eq!(pool.admission.queueing, Queueing::On);
    assert_eq!(pool.admission.bands.standard.max_requests, 7);
    assert_eq!(pool.admission.bands.standard.timeout.as_secs(), 9);
    assert!(notes[0].contains("34"), "{notes:?}");
    let unlimited = start("--worker-urls a --max-concurrent-requests -1 --queue-size 7");
    assert_eq!(unlimited.config.pools[0].admission.queueing, Queueing::Off);
    assert!(unlimited.notes[0].contains("--queue-size"));
}

#[test]
fn policies_of_other_routers_are_translated() {
    let started = start("--worker-urls a --policy cache_aware --cache-threshold 0.5");
    assert_eq!(started.config.pools[0].settings.policy, PolicySettings::default());
    assert_eq!(started.notes.len(), 2, "{:?}", started.notes);
    let sticky = start("--worker-urls a --policy consistent_hashing");
    assert_eq!(sticky.config.pools[0].session_header.as_deref(), Some("x-session-id"));
    let error = flags("--worker-urls a --policy bucket").unwrap().start().unwrap_err();
    assert!(error.to_string().contains("least_request"), "{error}");
}

#[test]
fn things_can_be_turned_off() {
    let line = "--worker-urls a --disable-retries --disable-circuit-breaker \
                --health-check-interval-secs 0 --request-timeout-secs 0";
    let config = start(line).config;
    let pool = &config.pools[0];
    assert_eq!((pool.retry.retries, pool.settings.ejection.consecutive_failures), (0, 0));
    assert!(pool.health.is_none());
    assert_eq!(pool.timeouts.request, crate::config::Timeouts::NEVER);
}

#[test]
fn a_file_excludes_flags_of_the_pool() {
    for line in ["", "--config f --worker-urls a", "--config f --policy random", "--nonsense"] {
        assert!(flags(line).is_err(), "{line}");
    }
    assert!(flags("--config f --port 1").is_ok());
    assert!(flags("--worker-urls a --api-key k --auth-none").is_err());
    assert!(flags("--worker-urls a --log-level loud").is_err());
}

#[test]
fn flags_of_the_process_go_before_every_version_of_the_file() {
    let path = std::env::temp_dir().join(format!("gateway-flags-{}.yaml", std::process::id()));
    let text = "workers: 3\nlog: { level: debug }\npools: [ { name: a, endpoints: [e] } ]\n";
    std::fs::write(&path, text).unwrap();
    let line = format!("--config {} --port 0 --log-json --log-level error", path.display());
    let started = flags(&line).unwrap().start();
    std::fs::remove_file(&path).unwrap();
    let Started { config, file, .. } = started.unwrap();
    assert_eq!(file, Some((path, text.to_owned())));
    for config in [config.reread(text).unwrap(), config] {
        assert_eq!(config.listen, ["127.0.0.1:0".parse().unwrap()]);
        assert_eq!((config.log.level, config.log.format), (Level::Error, LogFormat::Json));
        assert_eq!(config.workers.map(std::num::NonZero::get), Some(3));
    }
}

#[test]
fn a_mistake_in_a_file_names_file_and_line() {
    let path = std::env::temp_dir().join(format!("gateway-wrong-{}.yaml", std::process::id()));
    std::fs::write(&path, "workers: many\n").unwrap();
    let error = flags(&format!("--config {}", path.display())).unwrap().start().unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert!(error.to_string().starts_with(&format!("{}:1:10: ", path.display())), "{error}");
}

#[test]
fn every_flag_has_a_twin_in_the_environment() {
    use clap::CommandFactory;
    let command = Arguments::command();
    let run = command.find_subcommand("run").unwrap();
    let flags = run.get_arguments().filter(|flag| !flag.is_hide_set());
    for flag in flags.filter(|flag| !matches!(flag.get_id().as_str(), "help" | "version")) {
        let name = flag.get_long().unwrap().replace('-', "_").to_uppercase();
        let env = flag.get_env().and_then(std::ffi::OsStr::to_str);
        assert_eq!(env, Some(format!("INFERENCE_GATEWAY_{name}").as_str()));
    }
}
