//! Configuration of each proxy: one worker, keep-alive on both sides, answers
//! passed on as they come.

use std::fmt::Write as _;

use super::Setting;
use crate::bench::message::MODEL;

/// Envoy's circuit breakers default to 1,024 connections and would refuse the
/// memory test; the route's timeout of 15 s would end long streams.
pub(crate) fn envoy(Setting { listen, upstreams, .. }: &Setting<'_>) -> String {
    let mut endpoints = String::new();
    for upstream in *upstreams {
        let _ = write!(
            endpoints,
            "\n        - endpoint: {{ address: {{ socket_address: {{ address: {}, port_value: {} }} }} }}",
            upstream.ip(),
            upstream.port()
        );
    }
    format!(
        r#"static_resources:
  listeners:
  - name: bench
    address: {{ socket_address: {{ address: {ip}, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          route_config:
            name: all
            virtual_hosts:
            - {{ name: all, domains: ["*"], routes: [ {{ match: {{ prefix: "/" }}, route: {{ cluster: engines, timeout: 0s }} }} ] }}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
  clusters:
  - name: engines
    type: STATIC
    connect_timeout: 1s
    circuit_breakers: {{ thresholds: [ {{ max_connections: 100000, max_pending_requests: 100000, max_requests: 100000 }} ] }}
    load_assignment:
      cluster_name: engines
      endpoints:
      - lb_endpoints:{endpoints}
"#,
        ip = listen.ip(),
        port = listen.port()
    )
}

/// `master_process off` makes nginx its own only worker, so that killing it
/// leaves nothing behind. The body buffer holds the largest prompt: nginx would
/// otherwise measure its temporary files.
pub(super) fn nginx(Setting { listen, upstreams, .. }: &Setting<'_>) -> String {
    let mut servers = String::new();
    for upstream in *upstreams {
        let _ = writeln!(servers, "    server {upstream};");
    }
    format!(
        "worker_processes 1;
daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  client_body_buffer_size 256k;
  client_max_body_size 1m;
  keepalive_requests 1000000000;
  upstream engines {{
{servers}    keepalive 1024;
    keepalive_requests 1000000000;
  }}
  server {{
    listen {listen} backlog=4096;
    location / {{
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_buffering off;
    }}
  }}
}}
"
    )
}

/// Everything but the worker count and the access log is the default: policy
/// `predicted`, scraping every 50 ms, health checks, retries.
pub(super) fn gateway(setting: &Setting<'_>) -> String {
    let Setting { listen, admin, upstreams, pool } = setting;
    let mut endpoints = String::new();
    for upstream in *upstreams {
        let _ = write!(endpoints, "\n  - \"http://{upstream}\"");
    }
    format!(
        "listen: [\"{listen}\"]
admin: {{ listen: \"{admin}\" }}
auth: none
workers: 1
log: {{ level: warn, access: off }}
pools:
- name: bench
  modelName: {MODEL}
  engineType: vllm
{pool}  endpoints:{endpoints}
"
    )
}
