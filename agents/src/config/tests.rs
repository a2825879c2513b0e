//! Tests of the configuration.

use super::*;

fn no_env() -> Environment {
    Environment::default()
}

fn flags(url: Option<&str>, model: Option<&str>, key: Option<&str>) -> Flags {
    Flags {
        model_url: url.map(str::to_owned),
        model: model.map(str::to_owned),
        api_key_env: key.map(str::to_owned),
        temperature: None,
    }
}

#[test]
fn model_settings_are_read_and_invalid_ones_rejected() {
    let with = |lines: &str| {
        let text = format!("[models.default]\nurl = \"http://h/v1\"\nmodel = \"a\"\n{lines}\n");
        Config::parse(&text, "p").map(|config| config.models[DEFAULT_MODEL].clone()).map_err(|error| error.to_string())
    };
    let model = with(
        "api_key_command = [\"pass\", \"x\"]\ntop_p = 0.9\nstop = [\"END\"]\nreasoning_effort = \"low\"\nstream = true\n\
         max_reply_tokens = 900\nconcurrency = 4\nrequests_per_minute = 60\ntokens_per_minute = 90000\n\
         patience = \"2h\"\nfallback_after = \"5s\"\nextra_body = { chat_template_kwargs = { thinking = false } }\n\
         headers = { x-key = { env = \"KEY\" }, x-title = \"t\" }\nquery = { api-version = \"2026-01\" }",
    );
    let model = model.expect("a good table");
    assert_eq!(model.variables().collect::<Vec<_>>(), ["KEY"]);
    assert_eq!((model.stream, model.top_p, model.patience.as_ms()), (Streaming::Always, Some(0.9), 7_200_000));
    assert_eq!(model.extra_body["chat_template_kwargs"]["thinking"], false);
    assert_eq!(model.max_reply_tokens.map(u32::from), Some(900));
    let price = with("price = { input = 0.15, output = 0.6 }").expect("a price").price.expect("a price");
    assert_eq!((price.input, price.cached, price.output), (150_000_000, 150_000_000, 600_000_000));
    for (lines, words) in [
        ("stream = \"no\"", "stream is \"auto\", true or false"),
        ("concurrency = 0", "between 1 and"),
        ("requests_per_minute = -1", "between 1 and"),
        ("top_p = 0", "top_p"),
        ("stop = [\"\"]", "stop"),
        ("patience = \"0s\"", "above zero"),
        ("extra_body = { stream = true }", "decided by stream"),
        ("extra_body = { a = [{ day = 2020-01-01 }] }", "write it as a text"),
        ("extra_body = { a = inf }", "neither inf nor nan"),
        ("api = \"responses\"\nextra_body = { input = [1] }", "blueprint's prompts"),
        ("api = \"anthropic\"\nextra_body = { system = \"x\" }", "blueprint's prompts"),
        ("headers = { a = { var = \"X\" } }", "{ env = \"VARIABLE\" }"),
        ("api_key_command = []", "a program"),
        ("api_key_command = [\"a\"]\napi_key_env = \"K\"", "models.default: a key comes from"),
        ("max_reply_tokens = 40000", "larger than context"),
        ("fallback = [\"b\"]", "add [models.b]"),
        ("fallback = [\"default\"]", "already"),
        ("burst = 3", "unknown field `burst`"),
        ("api = \"gemini\"", "unknown variant"),
        ("context = 10", "at least 512"),
        ("tokens_per_minute = 10", "at least 1000"),
        ("patience = \"99999999d\"", "366 days"),
        ("price = { input = 1 }", "output"),
        ("price = { input = -1, output = 1 }", "amount of money"),
        ("price = { input = 1, cached = 2, output = 1 }", "cached tokens"),
        ("price = { input = 1, output = 1, per = 1000 }", "unknown field `per`"),
        (
            "price = { input = 1, output = 1 }\n[models.b]\nurl = \"http://h/v1\"\nmodel = \"b\"\nprice = { input = 1, output = 1, currency = \"EUR\" }",
            "one currency",
        ),
    ] {
        let error = with(lines).expect_err(lines);
        assert!(error.contains(words), "{lines}: {error}");
    }
}

#[test]
fn the_smallest_context_of_a_model_and_its_fallbacks_bounds_what_it_is_asked() {
    let text = "[models.default]\nurl = \"http://h/v1\"\nmodel = \"a\"\ncontext = 128000\nfallback = [\"b\", \"c\"]\n\
                [models.b]\nurl = \"http://h/v1\"\nmodel = \"b\"\ncontext = 8192\n\
                [models.c]\nurl = \"http://h/v1\"\nmodel = \"c\"\n";
    let config = Config::parse(text, "p").expect("a good file");
    let contexts = [None, Some("b"), Some("c"), Some("d")].map(|name| config.context(name));
    assert_eq!(contexts, [Some(8192), Some(8192), Some(32_768), None]);
}

#[test]
fn a_temperature_is_that_of_all_models_and_names_none() {
    let text =
        "[models.default]\nurl = \"http://h/v1\"\nmodel = \"a\"\n[models.b]\nurl = \"http://h/v1\"\nmodel = \"b\"\n";
    let hot = |temperature| Flags { temperature: Some(temperature), ..Flags::default() };
    let of = |flags: &Flags| Config::parse(text, "p").expect("a good file").with_flags(flags, &no_env());
    let config = of(&hot(0.7)).expect("a temperature");
    assert_eq!(config.models.values().map(|model| model.temperature).collect::<Vec<_>>(), [0.7, 0.7]);
    assert_eq!(config.any_model, None, "no other name means one of them");
    let named = of(&Flags { temperature: Some(1.0), ..flags(None, Some("c"), None) }).expect("a model");
    assert_eq!(named.model(Some("other")).map(|model| (model.model.as_str(), model.temperature)), Some(("c", 1.0)));
    for wrong in [-0.1, 2.1, f64::NAN] {
        let error = of(&hot(wrong)).expect_err("it is none").to_string();
        assert!(error.contains("--temperature") && error.contains("between 0 and 2"), "{error}");
    }
}

#[test]
fn a_file_is_read_and_what_it_leaves_out_has_defaults() {
    let text = "[models.local]\nurl = \"http://localhost:1/v1/\"\nmodel = \"m\"\n\
                [commands.c]\nprogram = [\"sh\", \"-c\"]\nenv = {A = \"b\"}\n";
    let config = Config::parse(text, "patchboard.toml").expect("a good file");
    assert_eq!(config.models["local"], Model::new("http://localhost:1/v1", "m"));
    assert_eq!(config.models["local"].max_tries, 3);
    assert_eq!(config.models["local"].structured, Structured::Derived);
    assert_eq!(config.commands["c"].env["A"], "b");
}

#[test]
fn invalid_settings_are_rejected_with_their_position() {
    let model = "[models.a]\nurl = \"http://h\"\nmodel = \"m\"\n";
    for (text, line, word) in [
        (format!("{model}api_key = \"k\""), "line 4", "api_key"),
        ("[model.a]".to_owned(), "line 1", "model"),
        (format!("{model}max_tries = 0"), "line 4", "between 1 and 10"),
        (format!("{model}temperature = -1.0"), "line 4", "temperature"),
        (format!("{model}structured = \"yes\""), "line 4", "derived"),
        ("[models.a]\nurl = \"ftp://h\"\nmodel = \"m\"".to_owned(), "line 2", "http://"),
        ("[models.a]\nurl = \"http://u:p@h\"\nmodel = \"m\"".to_owned(), "line 2", "credentials"),
        ("[commands.a]\nprogram = []".to_owned(), "line 2", "begins with its name"),
        ("[commands.a]\nprogram = \"sh -c\"".to_owned(), "line 2", "sequence"),
        ("[workspaces.a]\ndir = \".\"\nexclude = [\"{a,b\"]".to_owned(), "line 3", "{a,b"),
        ("[workspaces.a]\ndir = \".\"\nmax_bytes = 0".to_owned(), "line 3", "above zero"),
        ("[workspace]\nexclude = [\"{a,b\"]".to_owned(), "line 2", "{a,b"),
        ("[workspace]\nmax_bytes = 0".to_owned(), "line 2", "above zero"),
        ("[workspace]\ngranularity = \"files\"".to_owned(), "line 2", "lines"),
        ("[workspace]\nanotate = false".to_owned(), "line 2", "annotate"),
        ("[workspace]\ndir = \".\"".to_owned(), "line 2", "dir"),
    ] {
        let error = Config::parse(&text, "p.toml").expect_err("must be refused").to_string();
        for part in ["p.toml", line, word] {
            assert!(error.contains(part), "{part:?} is not in {error}");
        }
    }
}

#[test]
fn the_former_name_of_the_derived_form_is_still_read() {
    for (name, expected) in [
        ("json_schema", Structured::Derived),
        ("derived", Structured::Derived),
        ("generic", Structured::Generic),
        ("off", Structured::Off),
    ] {
        let text = format!("[models.a]\nurl = \"http://h\"\nmodel = \"m\"\nstructured = \"{name}\"\n");
        assert_eq!(Config::parse(&text, "p").expect("a good file").models["a"].structured, expected);
    }
}

#[test]
fn the_architects_terms_have_defaults_and_are_finite() {
    let parsed = |text: &str| Config::parse(text, "p").map(|config| config.architect);
    assert_eq!(parsed("").expect("nothing is demanded"), Architect::default());
    let given = parsed("[architect]\nrepairs = 0\ntokens = 5000\nwall = \"5m\"\n").expect("a good table");
    assert_eq!((given.terms().repairs, given.terms().caps.tokens, given.commits), (0, 5000, 1000));
    for bad in ["repairs = 11", "tokens = 0", "wall = \"0s\"", "wall = 5", "reply_tokens = -1", "retries = 1"] {
        assert!(parsed(&format!("[architect]\n{bad}\n")).is_err(), "{bad}");
    }
}

#[test]
fn settings_that_conflict_or_that_the_api_lacks_are_rejected() {
    for (lines, words) in [
        ("extra_body = { max_tokens = 9 }", "cannot hold max_tokens: it is decided by limits.reply_tokens"),
        ("extra_body = { max_completion_tokens = 9 }", "cannot hold max_completion_tokens"),
        ("extra_body = { n = 4 }", "cannot hold n"),
        ("seed = 1\napi = \"anthropic\"", "seed is known to api = \"chat\" only"),
        ("stop = [\"x\"]\napi = \"responses\"", "stop is not known to api = \"responses\""),
        ("headers = { X-A = \"1\", x-a = \"2\" }", "one name twice"),
    ] {
        let text = format!("[models.a]\nurl = \"http://h\"\nmodel = \"m\"\n{lines}\n");
        let error = Config::parse(&text, "p").expect_err(lines).to_string();
        assert!(error.contains(words), "{error}");
    }
    let nameless = "[models.a]\nurl = \"http://h\"\nmodel = \" \"\n";
    assert!(Config::parse(nameless, "p").expect_err("no name").to_string().contains("no empty text"));
}

#[test]
fn relative_paths_are_relative_to_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("patchboard.toml");
    let text = "[commands.a]\nprogram = [\"./a.sh\"]\ncwd = \"w\"\n[commands.b]\nprogram = [\"sh\"]\n";
    std::fs::write(&path, text).expect("written");
    let config = Config::read(&path).expect("a good file");
    assert_eq!(Path::new(&config.commands["a"].program[0]), dir.path().join("./a.sh"));
    assert_eq!(config.commands["a"].cwd, Some(dir.path().join("w")));
    assert_eq!(config.commands["b"].program, ["sh"]);
    let missing = Config::read(&dir.path().join("none.toml")).expect_err("no such file").to_string();
    assert!(missing.contains("none.toml"), "{missing}");
}

#[test]
fn the_usual_variables_serve_as_the_default_model() {
    let env = Environment::from_iter([("OPENAI_API_KEY", "k"), ("OPENAI_MODEL", "m")]);
    let config = Config::default().with_flags(&Flags::default(), &env).expect("complete");
    let model = config.model(None).expect("the default");
    assert_eq!((model.url.as_str(), model.model.as_str()), (OPENAI_URL, "m"));
    assert_eq!(model.api_key_env.as_deref(), Some("OPENAI_API_KEY"));
    assert_eq!(config.model(Some("other")), None, "the environment is not an answer to every name");

    let silent = Config::default().with_flags(&Flags::default(), &no_env()).expect("nothing asked for");
    assert_eq!(silent.model(None), None);
}

#[test]
fn flags_serve_every_name_that_the_file_does_not_define() {
    let text = "[models.default]\nurl = \"http://a\"\nmodel = \"m\"\napi_key_env = \"K\"\nseed = 5\n\
                [models.fixed]\nurl = \"http://c\"\nmodel = \"f\"\n";
    let file = Config::parse(text, "p").expect("a good file");
    let config = file.with_flags(&flags(None, Some("other"), None), &no_env()).expect("complete");
    for name in [None, Some("default"), Some("unknown")] {
        let model = config.model(name).expect("served");
        assert_eq!((model.url.as_str(), model.model.as_str(), model.seed), ("http://a", "other", Some(5)));
        assert_eq!(model.api_key_env.as_deref(), Some("K"));
    }
    assert_eq!(config.model(Some("fixed")).expect("served").model, "f");
}

#[test]
fn a_key_goes_only_where_it_was_configured_to_go() {
    let env = Environment::from_iter([("OPENAI_API_KEY", "k"), ("OPENAI_MODEL", "m")]);
    let elsewhere = flags(Some("http://elsewhere"), None, None);
    let config = Config::default().with_flags(&elsewhere, &env).expect("complete");
    assert_eq!(config.model(None).expect("served").api_key_env, None);
    let named = flags(Some("http://elsewhere"), None, Some("OPENAI_API_KEY"));
    let config = Config::default().with_flags(&named, &env).expect("complete");
    assert_eq!(config.model(None).expect("served").api_key_env.as_deref(), Some("OPENAI_API_KEY"));
}

#[test]
fn incomplete_flags_say_what_is_missing() {
    for (flags, word) in [
        (flags(Some("http://h"), None, None), "--model "),
        (flags(None, Some("m"), None), "--model-url"),
        (flags(Some("h"), Some("m"), None), "not an address"),
    ] {
        let error = Config::default().with_flags(&flags, &no_env()).expect_err("incomplete").to_string();
        assert!(error.contains(word), "{word:?} is not in {error}");
    }
}

#[test]
fn debug_output_shows_no_values_that_may_be_secret() {
    let mut model = Model::new("http://h", "m");
    model.headers.insert("x-key".into(), Setting::Text("hush-header".into()));
    let mut program = Program::new(vec!["p".into()]);
    program.env.insert("KEY".into(), "hush-env".into());
    let env = Environment::from_iter([("K", "hush-process")]);
    let mut embeddings = Embeddings::new("http://h", "m");
    embeddings.headers.insert("y-key".into(), Setting::Text("hush-header".into()));
    let shown = format!("{model:?} {program:?} {env:?} {embeddings:?}");
    assert!(
        shown.contains("x-key") && shown.contains("y-key") && shown.contains("KEY") && !shown.contains("hush"),
        "{shown}"
    );
}

#[test]
fn the_page_shows_the_table_with_its_defaults() {
    let page = include_str!("../../../docs/roles.md");
    let table = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a table");
    let config = Config::parse(table, "roles.md").expect("it can be read");
    let expected = Embeddings::new("http://127.0.0.1:18081/v1", "nomic-embed-text-v1.5");
    assert_eq!(config.embeddings, Some(expected));
    assert_eq!(Config::parse("", "p").expect("nothing is demanded").embeddings, None);
}

#[test]
fn invalid_embedding_settings_are_rejected() {
    for (line, words) in [
        ("likeness = 1.5", "between 0 and 1"),
        ("likeness = nan", "between 0 and 1"),
        ("timeout = \"0s\"", "above zero"),
        ("max_tries = 11", "max_tries"),
        ("temperature = 0", "temperature"),
        ("api_key_command = []", "a program"),
        ("url = \"http://g\"", "url"),
    ] {
        let text = format!("[embeddings]\nurl = \"http://h\"\nmodel = \"m\"\n{line}");
        let error = Config::parse(&text, "p.toml").expect_err("must be refused").to_string();
        assert!(error.contains("line 4") && error.contains(words), "{error}");
    }
    let text = "[embeddings]\nurl = \"http://h\"\nmodel = \"m\"\napi_key_env = \"K\"\napi_key_command = [\"k\"]";
    let both = Config::parse(text, "p.toml").expect_err("must be refused").to_string();
    assert!(both.contains("embeddings: a key comes from"), "{both}");
    let lacks = Config::parse("[embeddings]\nmodel = \"m\"", "p.toml").expect_err("where is it").to_string();
    assert!(lacks.contains("url"), "{lacks}");
}
