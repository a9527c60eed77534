use super::*;
use crate::route::{RouteSettings, RouteTable};

fn table() -> RouteTable {
    let small = PoolNames {
        model: Some("small".into()),
        aliases: vec!["s".into()],
        served: Vec::new(),
        adapters: vec!["sql-lora".into()],
    };
    let pools = vec![small, PoolNames::default()];
    RouteTable::new(RouteSettings { pools, ..RouteSettings::default() }).unwrap()
}

fn cards(json: &str) -> PoolCards {
    serde_json::from_str(json).unwrap()
}

fn ids(list: &[ModelCard]) -> Vec<&str> {
    list.iter().map(|card| &*card.id).collect()
}

const SMALL: &str = r#"{"id":"small","object":"model","created":7,"owned_by":"vllm",
    "root":"/models/small","parent":null,"max_model_len":8192,"permission":[]}"#;
const CHAT: &str = r#"{"id":"chat-lora","object":"model","created":8,"owned_by":"vllm",
    "root":"/loras/chat","parent":"small"}"#;

#[test]
fn the_answers_of_several_engines_are_one_list() {
    // The second engine has an adapter more; the third is down.
    let answers = [cards(&format!("[{SMALL},{SMALL},{CHAT}]")), cards(r#"[{"id":"any"}]"#)];
    let list = table().list(&answers, |_| true);
    assert_eq!(ids(&list), ["small", "s", "chat-lora", "sql-lora", "any"]);
    assert_eq!(list[0].max_model_len, Some(8192));
    assert_eq!(list[2].parent.as_deref(), Some("small"));
    assert_eq!(list[2].root.as_deref(), Some("/loras/chat"));
}

#[test]
fn an_alias_is_listed_with_what_it_stands_for() {
    let list = table().list(&[cards(&format!("[{SMALL}]"))], |_| true);
    assert_eq!(list[1].root.as_deref(), Some("small"));
    assert_eq!(list[1].max_model_len, Some(8192));
}

#[test]
fn configured_names_are_listed_while_no_engine_answers() {
    let list = table().list(&[], |_| true);
    assert_eq!(ids(&list), ["small", "s", "sql-lora"]);
    assert_eq!(list[2].parent.as_deref(), Some("small"));
}

#[test]
fn a_key_sees_only_its_models() {
    let list = table().list(&[], |name| name == "s");
    assert_eq!(ids(&list), ["s"]);
}

#[test]
fn what_is_listed_can_be_asked_for_and_nothing_else_is_listed() {
    let table = table();
    // A base model that is not the pool's own cannot be routed to.
    let answers =
        [cards(&format!("[{SMALL},{CHAT},{{\"id\":\"other\"}}]")), cards(r#"[{"id":"any"}]"#)];
    let found = table.discover(&answers);
    let list = table.list(&answers, |_| true);
    assert!(!ids(&list).contains(&"other"));
    let mut rng = fastrand::Rng::with_seed(1);
    for card in &list {
        assert!(table.resolve(Some(&card.id), &found, &mut rng).is_ok(), "{}", card.id);
    }
    assert!(table.resolve(Some("other"), &found, &mut rng).is_err());
}

#[test]
fn an_unloaded_adapter_leaves_the_list() {
    let table = table();
    assert_eq!(table.discover(&[cards(&format!("[{SMALL},{CHAT}]"))]).len(), 1);
    assert!(table.discover(&[cards(&format!("[{SMALL}]"))]).is_empty());
}

#[test]
fn the_order_does_not_depend_on_who_answers_first() {
    let other = CHAT.replace("chat-lora", "a-lora");
    let one = table().list(&[cards(&format!("[{SMALL},{CHAT},{other}]"))], |_| true);
    let two = table().list(&[cards(&format!("[{other},{SMALL},{CHAT}]"))], |_| true);
    assert_eq!(one, two);
}

#[test]
fn a_card_is_written_without_what_is_missing() {
    let card: ModelCard = serde_json::from_str(r#"{"id":"x"}"#).unwrap();
    let json = serde_json::to_string(&card).unwrap();
    assert_eq!(json, r#"{"id":"x","object":"model","created":0,"owned_by":"inference-gateway"}"#);
}
