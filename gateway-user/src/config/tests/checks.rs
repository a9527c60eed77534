//! Mistakes: each is refused, at its line, with a fix.

use super::*;

/// Lines of `pool` before those it is given.
const BEFORE: u64 = 4;

fn at_line(text: &str, line: u64, words: &[&str]) {
    let error = refused(text);
    let message = error.to_string();
    assert_eq!(error.line(), Some(line), "{message}\n{text}");
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

fn in_pool(more: &str, words: &[&str]) {
    at_line(&pool(more), BEFORE + more.lines().count() as u64, words);
}

#[test]
fn unknown_keys_are_answered_with_the_known_ones() {
    at_line(&format!("{}wrokers: 1\n", pool("")), 5, &["wrokers", "workers"]);
    in_pool("metrics:\n  intervall: 50ms", &["intervall", "idleInterval"]);
    in_pool("flowControl:\n  bands:\n    critical:\n      size: 1", &["size", "maxRequests"]);
    let text = "pools:\n- name: a\n  endpoints:\n  - adress: e\n";
    at_line(text, 4, &["adress", "address"]);
}

#[test]
fn values_of_the_wrong_kind_are_found() {
    in_pool("metrics:\n  interval: 50", &["`50`", "50ms"]);
    in_pool("metrics: sometimes", &["section", "off"]);
    in_pool("maxRequestBodyBytes: huge", &["`huge`", "256MiB"]);
    in_pool("failureMode: maybe", &["maybe", "FailOpen"]);
    at_line("workers: many\n", 1, &["`workers` needs a whole number"]);
    in_pool("retry:\n  attempts: -1", &["`attempts` needs a whole number"]);
    in_pool("weights:\n  queue: much", &["`queue` needs a number"]);
    at_line("debugHeaders: 7\n", 1, &["`debugHeaders` needs on or off"]);
    in_pool("timeouts: soon", &["`timeouts` needs a section"]);
    in_pool("aliases: x", &["`aliases` needs a list"]);
    in_pool("modelName: x", &["duplicate", "modelName"]);
    assert!(refused("pools: [\n").line().is_some());
}

#[test]
fn zero_durations_are_refused_where_they_mean_nothing() {
    in_pool("metrics:\n  interval: 0s", &["interval is 0s"]);
    in_pool("health:\n  timeout: 0s", &["timeout is 0s"]);
    in_pool("timeouts:\n  connect: 0s", &["connect is 0s"]);
    in_pool("flowControl:\n  bands:\n    standard:\n      timeout: 0s", &["timeout is 0s"]);
}

#[test]
fn numbers_out_of_range_are_refused() {
    in_pool("weights: { queue: 0 }", &["all weights are 0"]);
    in_pool("weights: { queue: -1 }", &["weight queue is -1"]);
    in_pool("weights: { queue: .nan }", &["weight queue is NaN"]);
    in_pool("predicted: { exploration: 1 }", &["exploration is 1"]);
    in_pool("prefix:\n  blockTokens: 20", &["blockTokens is 20", "16"]);
    in_pool("ejection:\n  maxPercent: 101", &["maxPercent is 101"]);
    in_pool("flowControl:\n  kvUsage: 80", &["kvUsage is 80", "0.8"]);
    in_pool("flowControl:\n  maxInFlightPerEndpoint: 0", &["maxInFlightPerEndpoint is 0"]);
    in_pool("health:\n  failures: 0", &["failures is 0", "off"]);
    in_pool("retry:\n  on: [timeout]", &["`timeout`", "connect"]);
    in_pool("retry:\n  on: [404]", &["`404`", "500 to 599"]);
    at_line(&format!("limits:\n  headBytes: 1\n{}", pool("")), 2, &["headBytes is 1"]);
    let stale = "metrics:\n  idleInterval: 5s\n  staleAfter: 2s";
    in_pool(stale, &["staleAfter 2s", "idleInterval"]);
}

#[test]
fn settings_that_contradict_are_refused() {
    in_pool("policy: random\nweights: { queue: 1 }", &["`random` does not use weights"]);
    in_pool("policy: random\npredicted: {}", &["`random` does not use `predicted`"]);
    in_pool("timeouts: { request: 1s }\nrouteTimeout: 1s", &["routeTimeout"]);
    in_pool("metrics:\n  mapping: { queuedRequestsSpec: q }", &["vllm has a mapping"]);
    in_pool("engineType: custom", &["no mapping", "metrics: off"]);
    parse(&pool("engineType: custom\nmetrics: off"));
    parse(&pool("engineType: custom\nmetrics:\n  mapping: { queuedRequestsSpec: q }"));
}

#[test]
fn unknown_names_are_answered_with_the_known_ones() {
    in_pool("policy: cache_aware", &["`cache_aware`", "predicted", "weighted"]);
    in_pool("engineType: ollama", &["`ollama`", "sglang", "custom"]);
    at_line(&format!("{}defaultPool: b\n", pool("")), 5, &["`b`", "pools: a"]);
}

#[test]
fn a_pool_is_named_once() {
    let text = format!("{}- name: a\n  modelName: n\n", pool(""));
    at_line(&text, 5, &["pool `a` is defined twice", "line 2"]);
    at_line("pools:\n- modelName: m\n", 2, &["no name"]);
    assert!(refused("workers: 1\n").to_string().contains("no pools"));
    assert!(refused("").to_string().contains("no pools"));
    assert!(refused("# nothing\n").to_string().contains("no pools"));
}

#[test]
fn a_model_is_named_once() {
    let two = |more: &str| format!("{}- name: b\n{more}", pool(""));
    at_line(&two("  modelName: m\n"), 6, &["model `m` is named twice"]);
    at_line(&two("  modelName: n\n  aliases: [m]\n"), 7, &["model `m` is named twice"]);
    in_pool("aliases: [x,\n  x]", &["model `x` is named twice"]);
    let open = "pools:\n- name: a\n  aliases: [x]\n";
    at_line(open, 3, &["alias `x`", "model name"]);
}

#[test]
fn rules_lead_somewhere() {
    let rule = |rule: &str| format!("{}rewrites:\n- {rule}\n", pool(""));
    at_line(&rule("targets: [ { modelRewrite: n } ]"), 6, &["`n`"]);
    at_line(&rule("targets: []"), 6, &["no targets"]);
    at_line(&rule("targets: [ { weight: 0, modelRewrite: m } ]"), 6, &["weigh 0"]);
    let mixed = "targets: [ { weight: 1, modelRewrite: m }, { modelRewrite: m } ]";
    at_line(&rule(mixed), 6, &["some targets"]);
}

#[test]
fn addresses_are_checked() {
    let endpoint = |address: &str| format!("pools:\n- name: a\n  endpoints:\n  - {address}\n");
    at_line(&endpoint("ftp://e"), 4, &["`ftp://e`", "http://10.0.0.1:8000"]);
    at_line(&endpoint("http://e/v1"), 4, &["has a path"]);
    at_line(&endpoint("{ address: e, weight: 0 }"), 4, &["weight of `e` is 0"]);
    at_line(&endpoint("{ address: e, dcgm: \"a b\" }"), 4, &["GPU exporter"]);
    at_line(&endpoint("e\n  - http://e:8000"), 5, &["`e:8000` is listed twice"]);
    at_line(&format!("listen: [\"8080\"]\n{}", pool("")), 1, &["`8080`"]);
    at_line(&format!("admin: {{ listen: nope }}\n{}", pool("")), 1, &["`nope`"]);
}

#[test]
fn no_door_is_open_by_accident() {
    let open = format!("listen: [\"127.0.0.1:1\", \"0.0.0.0:8080\"]\n{}", pool(""));
    at_line(&open, 1, &["`0.0.0.0:8080`", "auth: none", "apiKeys"]);
    parse(&format!("auth: none\n{open}"));
    parse(&format!("listen: localhost:8080\n{}", pool("")));
    let no_keys = format!("auth: {{ apiKeys: [] }}\n{}", pool(""));
    at_line(&no_keys, 1, &["no key opens"]);
    let twice = "auth:\n  apiKeys:\n  - { name: a, key: x }\n  - { name: a, key: y }\n";
    at_line(&format!("{twice}{}", pool("")), 4, &["key `a` is defined twice"]);
    let unset = "auth:\n  apiKeys:\n  - { name: a, keyEnv: SURELY_UNSET_VARIABLE }\n";
    at_line(&format!("{unset}{}", pool("")), 3, &["SURELY_UNSET_VARIABLE"]);
}

#[test]
fn an_error_in_a_file_can_be_jumped_to() {
    let path = std::env::temp_dir().join(format!("gateway-config-{}.yaml", std::process::id()));
    std::fs::write(&path, "listen: nope\n").unwrap();
    let error = Config::load(&path).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    let expected = format!(
        "{}:1:9: `nope` is not an address to listen on; \
         write an IP address and a port, such as 0.0.0.0:8080",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn peers_are_admin_ports_and_their_intervals_fit() {
    let peers = |section: &str| format!("peers: {section}\n{}", pool(""));
    at_line(&peers("{ adresses: [a] }"), 1, &["adresses", "idleInterval"]);
    at_line(&peers("{ addresses: ['a b'] }"), 1, &["`a b`", "peer"]);
    at_line(&peers("{ addresses: ['https://a'] }"), 1, &["https://a", "host:port"]);
    at_line(&peers("{ addresses: [a], interval: 0s }"), 1, &["interval is 0s"]);
    at_line(&peers("{ addresses: [a], staleAfter: 1s }"), 1, &["staleAfter 1s", "idleInterval"]);
    assert_eq!(parse(&peers("{ addresses: [] }")).peers, None);
    let found = parse(&peers("{ addresses: ['gateways:1', '[::1]'] }")).peers.unwrap();
    let found: Vec<String> = found.addresses.iter().map(HttpAddress::authority).collect();
    assert_eq!(found, ["gateways:1", "[::1]:9090"]);
}
