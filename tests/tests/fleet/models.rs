//! `GET /v1/models`: one list for the whole fleet.

use anyhow::Result;
use gateway_tests::client::{get, post};
use gateway_tests::gateway::Gateway;
use gateway_tests::server::{Adapter, Options, Simulated};
use serde_json::Value;

use super::ask::{ask, becomes, over, stop};

async fn serving(models: &[&str], adapters: &[&str]) -> Result<Simulated> {
    let options = Options {
        models: models.iter().map(ToString::to_string).collect(),
        adapters: adapters.iter().map(|name| Adapter::new(name)).collect(),
        ..Options::fast("e")
    };
    Ok(Simulated::start(options).await?)
}

async fn list(gateway: &Gateway) -> Result<Vec<Value>> {
    let answer = ask(gateway, &get("/v1/models")).await?;
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    let list = answer.json();
    assert_eq!(list["object"], "list");
    Ok(list["data"].as_array().cloned().unwrap_or_default())
}

fn names(list: &[Value]) -> Vec<&str> {
    list.iter().filter_map(|model| model["id"].as_str()).collect()
}

// A6
#[tokio::test]
async fn models_and_adapters_of_all_endpoints_are_listed_once() -> Result<()> {
    let engines =
        [serving(&["tiny"], &["sql", "poems"]).await?, serving(&["tiny"], &["sql"]).await?];
    let gateway = over(&engines, "").await?;
    assert_eq!(names(&list(&gateway).await?), ["tiny", "poems", "sql"]);
    Ok(())
}

// A6: what clients read beyond the name.
#[tokio::test]
async fn entries_keep_parent_root_and_context_length() -> Result<()> {
    let engines = [serving(&["tiny"], &["sql"]).await?];
    let gateway = over(&engines, "").await?;
    let list = list(&gateway).await?;
    assert_eq!(list[0]["max_model_len"], engines[0].options().context_length());
    assert_eq!(list[0]["root"], "/models/tiny");
    assert_eq!(list[0]["owned_by"], "vllm");
    assert_eq!(list[1]["parent"], "tiny");
    assert_eq!(list[1]["root"], "/models/sql");
    assert_eq!(list[1]["object"], "model");
    Ok(())
}

// A6, B25
#[tokio::test]
async fn one_model_is_found_by_its_name_however_it_is_written() -> Result<()> {
    let engines = [serving(&["org/name"], &[]).await?];
    let gateway = over(&engines, "").await?;
    for path in ["/v1/models/org%2Fname", "/v1/models/org/name", "/v1/models/org%2fname/"] {
        let answer = ask(&gateway, &get(path)).await?;
        assert_eq!((answer.head.status, &answer.json()["id"]), (200, &"org/name".into()), "{path}");
    }
    assert_eq!(ask(&gateway, &get("/v1/models/")).await?.head.status, 200);
    let missing = ask(&gateway, &get("/v1/models/other")).await?;
    assert_eq!(missing.head.status, 404);
    assert_eq!(missing.json()["error"]["code"], "model_not_found");
    Ok(())
}

// H3b
#[tokio::test]
async fn an_endpoint_that_is_down_does_not_spoil_the_list() -> Result<()> {
    let engines = vec![serving(&["tiny"], &["sql"]).await?, serving(&["tiny"], &[]).await?];
    let gateway = over(&engines, "").await?;
    let gone = stop(engines, 1);
    assert_eq!(names(&list(&gateway).await?), ["tiny", "sql"]);
    becomes(&gateway, gone.addr, "stale").await?;
    assert_eq!(names(&list(&gateway).await?), ["tiny", "sql"]);
    Ok(())
}

// B16
#[tokio::test]
async fn aliases_and_further_names_are_listed_and_found() -> Result<()> {
    let engines = [serving(&["tiny", "tiny-v2"], &[]).await?];
    let names_of = "  modelName: tiny\n  servedNames: [tiny-v2]\n  aliases: [gpt-4]\n";
    let gateway = over(&engines, names_of).await?;
    let list = list(&gateway).await?;
    assert_eq!(names(&list), ["tiny", "tiny-v2", "gpt-4"]);
    assert_eq!(list[2]["root"], "tiny");
    assert_eq!(list[2]["max_model_len"], list[0]["max_model_len"]);
    let one = ask(&gateway, &get("/v1/models/gpt-4")).await?;
    assert_eq!(one.json()["id"], "gpt-4");
    Ok(())
}

#[tokio::test]
async fn other_methods_on_models_are_refused() -> Result<()> {
    let engines = [serving(&["tiny"], &[]).await?];
    let gateway = over(&engines, "").await?;
    for path in ["/v1/models/tiny", "/v1/models"] {
        assert_eq!(ask(&gateway, &post(path, "{\"model\":\"tiny\"}")).await?.head.status, 404);
    }
    assert!(!engines[0].requests().iter().any(|request| request.head.method == "POST"));
    Ok(())
}
