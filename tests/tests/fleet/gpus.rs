//! GPU exporters: a GPU that reports an error takes its endpoint out.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use gateway_tests::gateway::Gateway;
use gateway_tests::place::Place;
use gateway_tests::server::Simulated;
use gateway_tests::wait::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::ask::{ask, becomes, chat, endpoint, engines, reason, spread, state};

/// A DCGM exporter of one GPU.
struct Exporter {
    addr: SocketAddr,
    page: Arc<Mutex<String>>,
    task: tokio::task::JoinHandle<()>,
}

impl Exporter {
    fn start() -> Result<Self> {
        let listener = Place::Pod.listen()?;
        let addr = listener.local_addr()?;
        let page = Arc::new(Mutex::new(String::new()));
        let task = tokio::spawn(serve(listener, Arc::clone(&page)));
        let exporter = Self { addr, page, task };
        exporter.tell(0, 40.0);
        Ok(exporter)
    }

    /// Shows this code of the last error and this utilisation.
    fn tell(&self, xid: u32, utilization: f64) {
        let labels =
            r#"gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA H100",Hostname="n""#;
        *self.page.lock().unwrap() = format!(
            "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n\
             # TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL{{{labels}}} {utilization}\n\
             # HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.\n\
             # TYPE DCGM_FI_DEV_XID_ERRORS gauge\nDCGM_FI_DEV_XID_ERRORS{{{labels}}} {xid}\n"
        );
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One answer per connection.
async fn serve(listener: TcpListener, page: Arc<Mutex<String>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = [0; 4096];
        if matches!(stream.read(&mut request).await, Ok(1..)) {
            let page = page.lock().unwrap().clone();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(format!("{head}{page}").as_bytes()).await;
        }
    }
}

fn watched(engines: &[Simulated], exporters: &[&Exporter]) -> Result<Gateway> {
    let endpoints: String = engines
        .iter()
        .zip(exporters)
        .map(|(engine, exporter)| {
            format!(
                "  - {{ address: \"{}\", dcgm: \"http://{}/metrics\" }}\n",
                engine.url(),
                exporter.addr
            )
        })
        .collect();
    Gateway::start(&format!(
        "listen: [\"127.0.0.1:0\"]\nadmin: {{ listen: \"127.0.0.1:0\" }}\nauth: none\n\
         log: {{ access: off }}\ndebugHeaders: true\ndefaultPool: p\npools:\n- name: p\n  policy: round_robin\n  \
         dcgm: {{ interval: 20ms }}\n  endpoints:\n{endpoints}"
    ))
}

#[tokio::test]
async fn a_fresh_xid_error_takes_the_endpoint_out_until_it_is_cleared() -> Result<()> {
    let engines = engines(2).await?;
    let exporters = [Exporter::start()?, Exporter::start()?];
    let gateway = watched(&engines, &[&exporters[0], &exporters[1]])?;
    gateway.serving(2).await;
    until(async || {
        // Utilisation is told in percent.
        anyhow::Ok(state(&gateway, &engines[0]).await?["gpu_utilization"] == 0.4)
    })
    .await?;
    exporters[0].tell(79, 0.0);
    becomes(&gateway, &engines[0], "gpu_fault").await?;
    assert_eq!(state(&gateway, &engines[0]).await?["xid"], 79);
    for _ in 0..10 {
        let answer = ask(&gateway, &chat("hi")).await?;
        assert_eq!(endpoint(&answer), engines[1].addr().to_string());
    }
    exporters[0].tell(0, 0.0);
    becomes(&gateway, &engines[0], "serving").await?;
    assert_eq!(spread(&gateway, 10).await?.len(), 2);
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn a_fleet_of_faulty_gpus_has_no_endpoint() -> Result<()> {
    let engines = engines(1).await?;
    let exporter = Exporter::start()?;
    exporter.tell(48, 10.0);
    let gateway = watched(&engines, &[&exporter])?;
    becomes(&gateway, &engines[0], "gpu_fault").await?;
    let answer = ask(&gateway, &chat("hi")).await?;
    assert_eq!((answer.head.status, reason(&answer)), (503, "no-endpoint"));
    gateway.idle().await;
    Ok(())
}

#[tokio::test]
async fn an_exporter_that_is_down_takes_nobody_out() -> Result<()> {
    let engines = engines(1).await?;
    let exporter = Exporter::start()?;
    exporter.task.abort();
    let gateway = watched(&engines, &[&exporter])?;
    gateway.serving(1).await;
    assert_eq!(ask(&gateway, &chat("hi")).await?.head.status, 200);
    assert!(state(&gateway, &engines[0]).await?["gpu_utilization"].is_null());
    gateway.idle().await;
    Ok(())
}
