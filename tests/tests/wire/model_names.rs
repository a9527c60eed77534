//! Where a model's name may stand, and by which name it answers.

use gateway_tests::client::{get, once, post, post_with};
use gateway_tests::server::{Options, Simulated};
use gateway_tests::wait::soon;
use serde_json::{Value, json};

use super::{CHAT, Gateway, ask, chat, engine, http2};

async fn org_engine() -> Simulated {
    let options = Options { models: vec!["org/name".to_owned()], ..Options::fast("e") };
    Simulated::start(options).await.unwrap()
}

fn text_of(length: usize) -> String {
    "word ".repeat(length / 5)
}

// B25: the name comes after 2 MB of messages, or twice.
#[tokio::test]
async fn the_name_may_come_after_two_megabytes_of_messages() {
    let engines = [engine().await, org_engine().await];
    let gateway = two_pools(&engines).await;
    let messages = json!([{ "role": "user", "content": text_of(400_000), "model": "org/name" }]);
    let late = |model: &str, pad: usize| {
        let pad = text_of(pad);
        format!(
            "{{\"messages\":{messages},\"user\":\"{pad}\",\"max_tokens\":2,\"model\":\"{model}\"}}"
        )
    };
    for (model, index) in [("tiny", 0), ("org/name", 1)] {
        let body = late(model, 2_000_000);
        assert_eq!(ask(gateway.addr(), CHAT, &body).await.head.status, 200);
        let requests = engines[index].inference_requests();
        assert!(requests.last().unwrap().body == body.as_bytes(), "the body differs");
        let client = http2::connect(gateway.addr()).await;
        let response = http2::send(&client, http2::post(CHAT, body)).await;
        assert_eq!(response.status(), 200);
        assert_eq!(engines[index].inference_requests().len(), 2);
    }
    gateway.idle().await;
}

// B25: a name within a message is no name.
#[tokio::test]
async fn only_the_top_level_names_the_model() {
    let engines = [engine().await, org_engine().await];
    let gateway = two_pools(&engines).await;
    let decoys = json!({
        "messages": [{ "role": "user", "content": "{\"model\":\"org/name\"}", "model": "org/name" }],
        "metadata": { "model": "org/name" },
        "model": "tiny",
    });
    assert_eq!(ask(gateway.addr(), CHAT, &chat(&decoys)).await.head.status, 200);
    assert_eq!(engines[0].inference_requests().len(), 1);
    let escaped =
        chat(&json!({})).replace("\"model\":\"tiny\"", "\"mod\\u0065l\":\"org\\/n\\u0061me\"");
    assert_eq!(ask(gateway.addr(), CHAT, &escaped).await.head.status, 200);
    assert_eq!(engines[1].inference_requests().len(), 1);
    gateway.idle().await;
}

async fn two_pools(engines: &[Simulated; 2]) -> Gateway {
    let gateway = Gateway::start(&format!(
        "listen: [\"127.0.0.1:0\"]\nadmin: {{ listen: \"127.0.0.1:0\" }}\nauth: none\n\
         log: {{ access: off }}\npools:\n\
         - {{ name: a, modelName: tiny, metrics: off, health: off, endpoints: [\"{}\"] }}\n\
         - {{ name: b, modelName: org/name, metrics: off, health: off, endpoints: [\"{}\"] }}\n",
        engines[0].url(),
        engines[1].url()
    ))
    .unwrap();
    gateway.serving(2).await;
    gateway
}

// B25: a name with a slash, in a URL.
#[tokio::test]
async fn a_model_with_a_slash_is_found_by_its_url() {
    let engines = [engine().await, org_engine().await];
    let gateway = two_pools(&engines).await;
    for path in ["/v1/models/org%2Fname", "/v1/models/org%2fname", "/v1/models/org/name"] {
        let answer = soon(once(gateway.addr(), &get(path))).await.unwrap();
        assert_eq!((answer.head.status, &answer.json()["id"]), (200, &json!("org/name")), "{path}");
    }
    let answer = soon(once(gateway.addr(), &get("/v1/models/org%2Fother"))).await.unwrap();
    assert_eq!(answer.head.status, 404);
    assert_eq!(answer.json()["error"]["code"], "model_not_found");
}

// B16: an alias works on every route, and answers call the model by it.
#[tokio::test]
async fn an_alias_answers_by_its_own_name_everywhere() {
    let engine = engine().await;
    let extra = "  modelName: tiny\n  aliases: [nick/name]\n";
    let gateway = Gateway::over(&[&engine], extra).await.unwrap();
    let mut body: Value = serde_json::from_str(&chat(&json!({ "model": "nick/name" }))).unwrap();
    body["prompt"] = json!("hi");
    body["input"] = json!("hi");
    body["query"] = json!("hi");
    body["documents"] = json!(["a", "b"]);
    body["text_1"] = json!("a");
    body["text_2"] = json!("b");
    let routes = [
        CHAT,
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/embeddings",
        "/v1/rerank",
        "/rerank",
        "/v1/score",
        "/pooling",
        "/classify",
        "/tokenize",
    ];
    for path in routes {
        let answer = ask(gateway.addr(), path, &body.to_string()).await;
        assert_eq!(answer.head.status, 200, "{path}: {}", answer.text());
        let answer = answer.json();
        if let Some(model) = answer.get("model") {
            assert_eq!(model, "nick/name", "{path}");
        }
        let got = engine.requests().into_iter().rfind(|request| request.head.path() == path);
        let got: Value = serde_json::from_slice(&got.unwrap().body).unwrap();
        assert_eq!(got["model"], "tiny", "{path}");
    }
    for path in [CHAT, "/v1/completions", "/v1/responses", "/v1/messages"] {
        body["stream"] = json!(true);
        let answer = ask(gateway.addr(), path, &body.to_string()).await;
        let text = answer.text();
        assert!(text.contains("\"nick/name\"") && !text.contains("\"tiny\""), "{path}: {text}");
    }
    let listed = soon(once(gateway.addr(), &get("/v1/models"))).await.unwrap().json();
    let names: Vec<&Value> = listed["data"].as_array().unwrap().iter().map(|m| &m["id"]).collect();
    assert!(names.contains(&&json!("nick/name")) && names.contains(&&json!("tiny")), "{names:?}");
    gateway.idle().await;
}

// A renamed answer has another length; it must still be one answer.
#[tokio::test]
async fn renamed_answers_keep_the_connection() {
    let engine = engine().await;
    let extra = "  modelName: tiny\n  aliases: [nickname-of-another-length]\n";
    let gateway = Gateway::over(&[&engine], extra).await.unwrap();
    let mut client = gateway_tests::client::RawClient::connect(gateway.addr()).await.unwrap();
    for stream in [false, true, false] {
        let body = chat(&json!({ "model": "nickname-of-another-length", "stream": stream }));
        let answer = soon(client.exchange(&post(CHAT, &body))).await.unwrap();
        assert_eq!(answer.head.status, 200);
        assert!(answer.text().contains("nickname-of-another-length"));
    }
    gateway.idle().await;
}

#[tokio::test]
async fn a_header_names_the_model_of_a_request_without_one() {
    let engines = [engine().await, org_engine().await];
    let gateway = two_pools(&engines).await;
    let headers = [("x-gateway-model-name", "org/name")];
    let request = post_with("/tokenize", &headers, "{\"prompt\":\"a b\"}");
    let answer = soon(once(gateway.addr(), &request)).await.unwrap();
    assert_eq!(answer.head.status, 200, "{}", answer.text());
    let asked = |engine: &Simulated| {
        engine.requests().iter().filter(|request| request.head.path() == "/tokenize").count()
    };
    assert_eq!((asked(&engines[0]), asked(&engines[1])), (0, 1));
    gateway.idle().await;
}
