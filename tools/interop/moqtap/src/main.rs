//! A publisher and a viewer built on moqtap-client, for any MOQT relay. They announce and withdraw
//! namespaces, subscribe, fetch both cached and uncached groups, and join late. The program prints
//! one line, or the step that failed. With `vectors` it checks messages instead: moqtap-codec must
//! decode each and encode it to the same bytes.

use std::env;
use std::io::{stdin, BufRead};
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::timeout;

mod draft18 {
    use moqtap_client::draft18 as client;
    use moqtap_codec::dispatch::AnyFetchHeader::Draft18 as AnyFetch;
    use moqtap_codec::dispatch::AnySubgroupHeader::Draft18 as AnySubgroup;
    use moqtap_codec::draft18 as codec;
    use moqtap_codec::draft18::message::FetchPayload;
    use moqtap_codec::version::DraftVersion;

    const DRAFT: DraftVersion = DraftVersion::Draft18;
    /// Object ID in the End Location of FETCH_OK, exclusive.
    const END_OBJECT: u64 = OBJECTS;

    /// The group that a FETCH requests; None for a joining FETCH or several groups.
    fn stored_group(fetch: &Fetch) -> Option<u64> {
        match &fetch.fetch_payload {
            FetchPayload::Standalone {
                start_group,
                end_group,
                ..
            } if start_group == end_group => Some((*start_group).into_inner()),
            _ => None,
        }
    }

    async fn request_group(conn: &mut Connection, group: u64) -> Result<RequestStream> {
        let (group, start) = (int(group), int(0));
        Ok(conn
            .fetch(
                namespace(),
                field("track"),
                group,
                start,
                group,
                int(0),
                Vec::new(),
            )
            .await?)
    }

    fn flags(v: u64) -> u64 {
        v
    }

    fn no_properties() -> Vec<u8> {
        Vec::new()
    }

    async fn join(_: &str) -> Result<String> {
        Ok(String::new())
    }

    include!("steps.rs");
}

/// Defines the module of a draft with fills for late viewers. `$fields` extracts the fields of a
/// location filter.
macro_rules! filled {
    ($draft:ident, $version:ident, $fields:expr) => {
        mod $draft {
            use moqtap_client::$draft as client;
            use moqtap_codec::dispatch::AnyFetchHeader::$version as AnyFetch;
            use moqtap_codec::dispatch::AnySubgroupHeader::$version as AnySubgroup;
            use moqtap_codec::kvp::KvpValue;
            use moqtap_codec::version::DraftVersion;
            use moqtap_codec::$draft as codec;

            const DRAFT: DraftVersion = DraftVersion::$version;

            /// The group that a FETCH requests; None for other ranges.
            fn stored_group(fetch: &Fetch) -> Option<u64> {
                let filter = fetch
                    .parameters
                    .iter()
                    .find(|p| p.key.into_inner() == codec::message::LOCATION_FILTER)?;
                let KvpValue::Bytes(value) = &filter.value else {
                    return None;
                };
                let fields: Vec<u64> = $fields(codec::message::decode_location_filter(value).ok()?);
                match fields[..] {
                    [group, 0, 0] => Some(group),
                    _ => None,
                }
            }

            include!("steps.rs");
            include!("filled.rs");
        }
    };
}

filled!(draft20, Draft20, |fields| fields);
filled!(draft22, Draft22, |(_, fields)| fields);

/// Decodes a message and returns its encoding by moqtap-codec.
macro_rules! again {
    ($draft:ident, $bytes:expr) => {{
        let mut rest: &[u8] = $bytes;
        let decoded = moqtap_codec::$draft::message::ControlMessage::decode(&mut rest);
        match decoded {
            Err(err) => Err(err.to_string()),
            Ok(_) if !rest.is_empty() => Err(format!("{} bytes are left", rest.len())),
            Ok(message) => {
                let mut encoded = Vec::new();
                message
                    .encode(&mut encoded)
                    .map(|()| encoded)
                    .map_err(|err| err.to_string())
            }
        }
    }};
}

/// Checks lines of draft, name and message in hex from standard input.
fn vectors() -> Result<String, String> {
    let mut count = 0;
    for line in stdin().lock().lines() {
        let line = line.map_err(|err| err.to_string())?;
        let fields: Vec<&str> = line.split(' ').collect();
        let [draft, name, hex] = fields[..] else {
            return Err(format!("not a vector: {line}"));
        };
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16))
            .collect::<Result<_, _>>()
            .map_err(|err| err.to_string())?;
        let encoded = match draft {
            "18" => again!(draft18, &bytes),
            "20" => again!(draft20, &bytes),
            "22" => again!(draft22, &bytes),
            _ => return Err(format!("unknown draft {draft}")),
        }
        .map_err(|err| format!("draft-{draft}: {name} {hex}: {err}"))?;
        if encoded != bytes {
            return Err(format!(
                "draft-{draft}: {name} {hex} becomes {encoded:02x?}"
            ));
        }
        count += 1;
    }
    Ok(format!("{count} messages are the same in both directions"))
}

async fn steps(addr: &str, draft: &str) -> Result<String, String> {
    let limit = Duration::from_secs(45);
    let result = match draft {
        "18" => timeout(limit, draft18::run(addr)).await,
        "20" => timeout(limit, draft20::run(addr)).await,
        "22" => timeout(limit, draft22::run(addr)).await,
        _ => return Err(format!("unknown draft {draft}")),
    };
    match result {
        Ok(result) => result.map_err(|err| err.to_string()),
        Err(_) => Err("no message within 45 s".into()),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let result = match &args[..] {
        [vectors_] if vectors_ == "vectors" => vectors(),
        [addr, draft] => steps(addr, draft).await,
        _ => {
            eprintln!(
                "usage: holocast-moqtap HOST:PORT DRAFT\n       holocast-moqtap vectors <LINES"
            );
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(err) => {
            eprintln!("holocast-moqtap: {err}");
            ExitCode::FAILURE
        }
    }
}
