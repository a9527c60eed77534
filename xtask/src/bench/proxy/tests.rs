use clap::Parser;

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    proxy: Proxy,
}

fn options(arguments: &[&str]) -> Proxy {
    Command::parse_from([&["proxy"], arguments].concat()).proxy
}

fn request(path: &'static str, cpu_us: f64) -> RequestRow {
    RequestRow {
        path,
        body_kb: Body::Medium,
        concurrency: 16,
        rps: 10.0,
        p50_us: 1.0,
        p99_us: 2.0,
        cpu_us,
    }
}

fn stream(path: &'static str, cpu_us: f64) -> StreamRow {
    StreamRow { path, chunk_p50_us: 1.0, chunk_p99_us: 2.0, cpu_us }
}

#[test]
fn the_median_of_each_path_is_reported() {
    let round = |direct: f64, nginx: f64| Figures {
        requests: vec![request("direct", direct), request("nginx", nginx)],
        streams: vec![stream("nginx", nginx), stream("direct", direct)],
        even_streams: vec![],
    };
    let options = options(&["--paths", "direct,nginx"]);
    let figures =
        Figures::medians(&options.paths, &[round(0.0, 10.0), round(0.0, 90.0), round(0.0, 12.0)]);
    let requests: Vec<_> = figures.requests.iter().map(|row| (row.path, row.cpu_us)).collect();
    let streams: Vec<_> = figures.streams.iter().map(|row| (row.path, row.cpu_us)).collect();
    assert_eq!(requests, [("direct", 0.0), ("nginx", 12.0)]);
    assert_eq!(streams, [("direct", 0.0), ("nginx", 12.0)]);
}

#[test]
fn json_has_exactly_the_promised_fields() {
    let figures = Figures {
        requests: vec![request("ours", 3.0)],
        streams: vec![stream("ours", 4.0)],
        even_streams: vec![stream("ours", 5.0)],
    };
    let expected = serde_json::json!({
        "requests": [{"path": "ours", "body_kb": 8.0, "concurrency": 16, "rps": 10.0, "p50_us": 1.0, "p99_us": 2.0, "cpu_us": 3.0}],
        "streams": [{"path": "ours", "chunk_p50_us": 1.0, "chunk_p99_us": 2.0, "cpu_us": 4.0}],
    });
    assert_eq!(serde_json::to_value(figures).unwrap(), expected);
}

#[test]
fn bodies_are_named_by_their_kilobytes() {
    assert_eq!(options(&[]).bodies, Body::ALL);
    assert_eq!(options(&["--bodies", "128,0.1"]).bodies, [Body::Long, Body::Short]);
    assert!(Command::try_parse_from(["proxy", "--bodies", "7"]).is_err());
}

#[test]
fn the_direct_path_is_measured_end_to_end() {
    let options =
        options(&["--paths", "direct", "--seconds", "0.1", "--rounds", "1", "--connections", "2"]);
    let upstream = Upstream::start(Settings { endpoints: ENDPOINTS, interval: INTERVAL }).unwrap();
    let running = [Running::start(Path::Direct, None, upstream.addresses()).unwrap()];
    let row = measure_requests(&options, &running[0], Body::Medium, 2).unwrap();
    assert!(row.rps > 0.0 && row.p50_us > 0.0 && row.p99_us >= row.p50_us);
    assert!(row.cpu_us == 0.0, "there is no proxy to use CPU");
}
