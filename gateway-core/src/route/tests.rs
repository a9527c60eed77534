use super::*;

fn names(model: &str, aliases: &[&str], adapters: &[&str]) -> PoolNames {
    let list = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
    PoolNames {
        model: Some(model.into()),
        aliases: list(aliases),
        served: Vec::new(),
        adapters: list(adapters),
    }
}

fn rule(models: &[&str], targets: &[(u32, &str)]) -> Rewrite {
    Rewrite {
        models: models.iter().map(|&name| name.into()).collect(),
        targets: targets
            .iter()
            .map(|&(weight, model)| Target { weight, model: model.into() })
            .collect(),
    }
}

fn two_pools() -> RouteSettings {
    RouteSettings {
        pools: vec![names("small", &["s", "tiny"], &["sql-lora"]), names("large", &[], &[])],
        ..RouteSettings::default()
    }
}

fn resolve(table: &RouteTable, model: &str) -> Result<Route, UnknownModel> {
    table.resolve(Some(model), &Discovered::default(), &mut fastrand::Rng::with_seed(7))
}

#[test]
fn a_model_goes_to_its_pool_unchanged() {
    let table = RouteTable::new(two_pools()).unwrap();
    let route = resolve(&table, "large").unwrap();
    assert_eq!(route, Route { pool: 1, target: "large".into(), rename: false, adapter: None });
}

#[test]
fn an_alias_is_sent_as_the_model() {
    let table = RouteTable::new(two_pools()).unwrap();
    let route = resolve(&table, "tiny").unwrap();
    assert_eq!(route, Route { pool: 0, target: "small".into(), rename: true, adapter: None });
}

#[test]
fn a_served_name_is_passed_unchanged() {
    let mut settings = two_pools();
    settings.pools[1].served.push("large-v2".into());
    let route = resolve(&RouteTable::new(settings).unwrap(), "large-v2").unwrap();
    assert_eq!((route.pool, &*route.target, route.rename), (1, "large-v2", false));
}

#[test]
fn an_adapter_goes_to_its_base_models_pool() {
    let table = RouteTable::new(two_pools()).unwrap();
    let route = resolve(&table, "sql-lora").unwrap();
    assert_eq!((route.pool, route.adapter.as_deref()), (0, Some("sql-lora")));
    let mut found = Discovered::default();
    found.insert("new-lora", 1, Kind::Adapter);
    let route = table.resolve(Some("new-lora"), &found, &mut fastrand::Rng::with_seed(7)).unwrap();
    assert_eq!((route.pool, route.adapter.as_deref(), route.rename), (1, Some("new-lora"), false));
}

#[test]
fn unknown_and_missing_names_need_a_default_pool() {
    let mut settings = two_pools();
    let table = RouteTable::new(settings.clone()).unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    assert_eq!(resolve(&table, "nope"), Err(UnknownModel));
    assert_eq!(table.resolve(None, &Discovered::default(), &mut rng), Err(UnknownModel));
    settings.default_pool = Some(1);
    let table = RouteTable::new(settings).unwrap();
    let unknown = resolve(&table, "nope").unwrap();
    assert_eq!((unknown.pool, &*unknown.target, unknown.rename), (1, "nope", false));
    let missing = table.resolve(None, &Discovered::default(), &mut rng).unwrap();
    assert_eq!((missing.pool, &*missing.target, missing.rename), (1, "large", false));
}

#[test]
fn a_canary_splits_by_weight() {
    let mut settings = two_pools();
    settings.rewrites.push(rule(&["gpt-4"], &[(90, "s"), (10, "large"), (0, "sql-lora")]));
    let table = RouteTable::new(settings).unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut hits = [0_u32; 2];
    for _ in 0..10_000 {
        let route = table.resolve(Some("gpt-4"), &Discovered::default(), &mut rng).unwrap();
        assert!(route.rename && route.adapter.is_none());
        hits[route.pool] += 1;
    }
    // Four standard deviations of a binomial with p = 0.1.
    assert!(hits[1].abs_diff(1_000) < 120, "{hits:?}");
}

#[test]
fn a_rule_for_a_served_name_goes_before_the_name() {
    let mut settings = two_pools();
    settings.rewrites.push(rule(&["small"], &[(1, "large")]));
    let table = RouteTable::new(settings).unwrap();
    let route = resolve(&table, "small").unwrap();
    assert_eq!((route.pool, &*route.target, route.rename), (1, "large", true));
    // Its target does not meet the rules again, and neither does the alias.
    assert_eq!(resolve(&table, "s").unwrap().pool, 0);
}

#[test]
fn a_target_that_is_the_asked_name_is_not_a_rename() {
    let mut settings = two_pools();
    settings.rewrites.push(rule(&["small"], &[(1, "small")]));
    assert!(!resolve(&RouteTable::new(settings).unwrap(), "small").unwrap().rename);
}

#[test]
fn a_rule_for_any_name_takes_only_what_is_unknown() {
    let mut settings = two_pools();
    settings.rewrites.push(rule(&[], &[(1, "large")]));
    settings.rewrites.push(rule(&["gpt-4"], &[(1, "small")]));
    let table = RouteTable::new(settings).unwrap();
    assert_eq!(resolve(&table, "gpt-4").unwrap().pool, 0);
    assert_eq!(resolve(&table, "sql-lora").unwrap().pool, 0);
    assert_eq!(resolve(&table, "nope").unwrap().pool, 1);
}

#[test]
fn the_first_rule_for_a_name_counts() {
    let mut settings = two_pools();
    settings.rewrites.push(rule(&["a"], &[(1, "large")]));
    settings.rewrites.push(rule(&["a", "b"], &[(1, "small")]));
    let table = RouteTable::new(settings.clone()).unwrap();
    assert_eq!(resolve(&table, "a").unwrap().pool, 1);
    assert_eq!(resolve(&table, "b").unwrap().pool, 0);
    settings.rewrites.push(rule(&["b"], &[(1, "large")]));
    let error = RouteTable::new(settings).unwrap_err();
    assert_eq!(error, RouteError::Shadowed { rewrite: 2 });
}

#[test]
fn a_name_cannot_lead_to_two_places() {
    let mut settings = two_pools();
    settings.pools[1].aliases.push("small".into());
    let error = RouteTable::new(settings).unwrap_err();
    assert_eq!(error, RouteError::Duplicate { name: "small".into(), first: 0, second: 1 });
    assert!(error.to_string().contains("`small`"));
}

#[test]
fn rules_that_lead_nowhere_are_refused() {
    let refused = |targets: &[(u32, &str)]| {
        let settings = RouteSettings { rewrites: vec![rule(&["a"], targets)], ..two_pools() };
        RouteTable::new(settings).unwrap_err()
    };
    let unknown = RouteError::UnknownTarget { rewrite: 0, target: "nope".into() };
    assert_eq!(refused(&[(1, "nope")]), unknown);
    assert_eq!(refused(&[]), RouteError::NoTargets { rewrite: 0 });
    assert_eq!(refused(&[(0, "small")]), RouteError::ZeroWeights { rewrite: 0 });
}

#[test]
fn an_open_pool_cannot_have_aliases_and_a_default_must_exist() {
    let mut settings = two_pools();
    settings.pools[0].model = None;
    let error = RouteTable::new(settings).unwrap_err();
    assert_eq!(error, RouteError::AliasOfNothing { alias: "s".into(), pool: 0 });
    let settings = RouteSettings { default_pool: Some(2), ..two_pools() };
    assert_eq!(RouteTable::new(settings).unwrap_err(), RouteError::UnknownDefault);
}
