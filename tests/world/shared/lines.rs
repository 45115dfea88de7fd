//! What all programs in Rust have in common: the question, a line a record, the records to write.

use std::io::BufRead;
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// The action and the JSON object that a program is started with.
pub struct Asked {
    pub action: String,
    object: Value,
}

/// A record to write. `t` None: no time was given.
pub struct Given {
    pub k: Option<Vec<u8>>,
    pub v: Option<Vec<u8>>,
    pub t: Option<i64>,
}

impl Asked {
    pub fn new() -> Asked {
        let mut words = std::env::args().skip(1);
        let action = words.next().unwrap();
        Asked { action, object: serde_json::from_str(&words.next().unwrap()).unwrap() }
    }

    pub fn text(&self, name: &str) -> &str {
        self.object[name].as_str().unwrap_or_default()
    }

    pub fn idle(&self) -> Duration {
        Duration::from_secs_f64(self.object["idle_s"].as_f64().unwrap())
    }

    pub fn is_committed(&self) -> bool {
        self.text("level") == "read_committed"
    }
}

pub fn show<'a>(
    (p, o, t): (i32, i64, i64),
    k: Option<&[u8]>,
    v: Option<&[u8]>,
    headers: impl Iterator<Item = (&'a str, Option<&'a [u8]>)>,
) {
    let text = |content: Option<&[u8]>| content.map(|bytes| STANDARD.encode(bytes));
    let h: Vec<Value> = headers.map(|(name, value)| json!([name, text(value)])).collect();
    println!("{}", json!({"p": p, "o": o, "k": text(k), "v": text(v), "h": h, "t": t}));
}

pub fn refused(why: impl std::fmt::Display) {
    println!("{}", json!({"refused": why.to_string()}));
}

pub fn given() -> Vec<Given> {
    let lines = std::io::stdin().lock().lines();
    lines.map(|line| one(serde_json::from_str(&line.unwrap()).unwrap())).collect()
}

fn one(line: Value) -> Given {
    let content = |name: &str| line[name].as_str().map(|text| STANDARD.decode(text).unwrap());
    Given { k: content("k"), v: content("v"), t: line["t"].as_i64() }
}

/// End the program with the error as its last line.
pub fn fail(why: impl std::fmt::Display) -> ! {
    eprintln!("{why}");
    std::process::exit(1)
}
