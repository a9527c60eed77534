//! JSON values that follow a schema, for JSON mode and tool calls.

use serde_json::{Map, Value, json};

/// Nesting beyond this is answered with `null`, for schemas may be recursive.
const DEEPEST: u32 = 16;

/// A value that follows `schema`, as far as its `type`, `enum`, `const`,
/// `properties`, `items` and `anyOf` go.
pub(super) fn instance(schema: &Value, rng: &mut fastrand::Rng) -> Value {
    if schema.is_null() {
        return json!({ "answer": word(rng), "confidence": rng.u32(0..100) });
    }
    below(schema, rng, 0)
}

fn below(schema: &Value, rng: &mut fastrand::Rng, depth: u32) -> Value {
    if depth > DEEPEST {
        return Value::Null;
    }
    if let Some(constant) = schema.get("const") {
        return constant.clone();
    }
    if let Some(options) = schema.get("enum").and_then(Value::as_array).filter(|o| !o.is_empty()) {
        return options[rng.usize(..options.len())].clone();
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        if let Some(first) = schema.get(key).and_then(|options| options.get(0)) {
            return below(first, rng, depth + 1);
        }
    }
    let kind = schema.get("type").map(|kind| kind.get(0).unwrap_or(kind));
    match kind.and_then(Value::as_str) {
        Some("array") => {
            let item = schema.get("items").map(|items| below(items, rng, depth + 1));
            Value::Array(item.into_iter().collect())
        }
        Some("boolean") => Value::Bool(rng.bool()),
        Some("integer") => json!(number(schema, rng)),
        Some("null") => Value::Null,
        Some("number") => json!(f64::from(number(schema, rng)) + 0.5),
        Some("string") => Value::String(word(rng).to_owned()),
        _ => object(schema, rng, depth),
    }
}

fn object(schema: &Value, rng: &mut fastrand::Rng, depth: u32) -> Value {
    let properties = schema.get("properties").and_then(Value::as_object);
    let members = properties.into_iter().flatten();
    let members = members.map(|(name, schema)| (name.clone(), below(schema, rng, depth + 1)));
    Value::Object(members.collect::<Map<_, _>>())
}

fn number(schema: &Value, rng: &mut fastrand::Rng) -> i32 {
    let bound = |key| schema.get(key).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok());
    let lowest = bound("minimum").unwrap_or(0);
    rng.i32(lowest..=bound("maximum").unwrap_or(lowest.saturating_add(99)).max(lowest))
}

fn word(rng: &mut fastrand::Rng) -> &'static str {
    ["north", "river", "stone", "amber"][rng.usize(..4)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_has_the_schemas_members_and_types() {
        let schema = json!({ "type": "object", "properties": {
            "city": { "type": "string" },
            "days": { "type": "integer", "minimum": 1, "maximum": 3 },
            "unit": { "enum": ["c", "f"] },
            "tags": { "type": "array", "items": { "type": "boolean" } },
        }});
        let value = instance(&schema, &mut fastrand::Rng::with_seed(1));
        assert!(value["city"].is_string());
        assert!((1..=3).contains(&value["days"].as_i64().unwrap()));
        assert!(["c", "f"].contains(&value["unit"].as_str().unwrap()));
        assert!(value["tags"][0].is_boolean());
    }

    #[test]
    fn members_keep_the_schemas_order() {
        let schema = json!({ "properties": { "z": { "const": 1 }, "a": { "const": 2 } } });
        let text = instance(&schema, &mut fastrand::Rng::with_seed(1)).to_string();
        assert_eq!(text, r#"{"z":1,"a":2}"#);
    }
}
