//! Reads the sessions that a token (JWT, RFC 7519) names. Its claims `subscribe` and `publish` are
//! lists of namespace prefixes, each a list of fields or a string of fields separated by slashes.
//! The signature is not verified; only the relay can. A viewer uses the names to query sessions
//! individually.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine;
use serde::Deserialize;

use crate::ROOT;

/// Maximum token length, bytes; relays reject longer ones.
const MAX_TOKEN: usize = 8 << 10;
/// Maximum sessions per token.
const MAX_SESSIONS: usize = 64;

#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    subscribe: Vec<Prefix>,
    /// Permission to publish includes watching.
    #[serde(default)]
    publish: Vec<Prefix>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prefix {
    Fields(Vec<String>),
    Text(String),
}

/// The sessions that a token names, in the token's order. Empty if it is invalid or names no
/// individual session.
pub fn sessions(token: &str) -> Vec<String> {
    let mut list = Vec::new();
    for prefix in prefixes(token).unwrap_or_default() {
        let fields = match prefix {
            Prefix::Fields(fields) => fields,
            Prefix::Text(text) => text.trim_matches('/').split('/').map(str::to_owned).collect(),
        };
        let [root, session] = fields.as_slice() else { continue };
        if root == ROOT && !session.is_empty() && !list.contains(session) && list.len() < MAX_SESSIONS {
            list.push(session.clone());
        }
    }
    list
}

fn prefixes(token: &str) -> Option<Vec<Prefix>> {
    if token.len() > MAX_TOKEN {
        return None;
    }
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    Some(claims.subscribe.into_iter().chain(claims.publish).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(claims: &str) -> String {
        format!("eyJhbGciOiJIUzI1NiJ9.{}.c2lnbmF0dXJl", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn sessions_of_tokens() {
        for (claims, want) in [
            (r#"{"subscribe":[["holocast","demo"]]}"#, &["demo"][..]),
            (
                r#"{"sub":"me","subscribe":["holocast/demo","/holocast/a b/"],"publish":[["holocast","own"],
                  ["holocast","demo"]]}"#,
                &["demo", "a b", "own"],
            ),
            (r#"{"subscribe":[["holocast","a/b"]]}"#, &["a/b"]),
            (r#"{"subscribe":["/",["holocast"],[],["other","demo"],["holocast","demo","points"],"holocast/"]}"#, &[]),
            (r#"{"subscribe":"holocast/demo"}"#, &[]),
            (r#"{"subscribe":[7]}"#, &[]),
            ("{}", &[]),
            ("[]", &[]),
            ("no JSON", &[]),
        ] {
            assert_eq!(sessions(&token(claims)), want, "{claims}");
        }
        for unreadable in ["", "opaque", "a.b", "..", "eyJ.~.x"] {
            assert!(sessions(unreadable).is_empty(), "{unreadable}");
        }
        let many: Vec<_> = (0..100).map(|i| vec![ROOT.to_owned(), i.to_string()]).collect();
        assert_eq!(sessions(&token(&serde_json::json!({ "subscribe": many }).to_string())).len(), MAX_SESSIONS);
        assert!(sessions(&token(&format!(r#"{{"subscribe":["holocast/demo"],"x":"{}"}}"#, "x".repeat(MAX_TOKEN))))
            .is_empty());
    }

    proptest! {
        #[test]
        fn any_claims(claims in any::<Vec<u8>>(), text in ".*") {
            let _ = sessions(&format!("a.{}.b", URL_SAFE_NO_PAD.encode(claims)));
            let _ = sessions(&text);
        }
    }
}
