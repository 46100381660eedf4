//! Which resources a refusal is about, read from the client's text.
//!
//! In: an error message, and whether a name is one that the client was sent. Out: the names that it blames. Envoy writes
//! `Error adding/updating cluster(s) shop: <why>, cart: <why>`, a line per listener, or dumps a field as `name: "shop"`:
//! a name counts where a colon follows it, or where it stands in quotes, and only if it was sent. That holds for other
//! texts too, and a name that the text merely contains (`shop.example`) is not blamed.
//!
//! The response that a refusal answers says less: an Envoy may refuse an earlier one under a later nonce.

use std::sync::Arc;

/// Behind a scheme.
const SCHEME_END: &str = "://";

/// The most names that one refusal is said to be about.
const MAX_BLAMED: usize = 16;

/// The names in `message` that are blamed, each once, in the text's order. `sent` finds a name among what was sent.
pub(super) fn blamed(message: &str, sent: impl Fn(&str) -> Option<Arc<str>>) -> Vec<Arc<str>> {
    let mut found: Vec<Arc<str>> = Vec::new();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let mut rest = message;
    let mut before = None;
    while let Some(start) = rest.find(is_name) {
        let (between, word) = rest.split_at(start);
        before = between.chars().next_back().or(before);
        let end_from = |from: usize| {
            let (_, rest) = word.split_at(from);
            from + rest.find(|c| !is_name(c)).unwrap_or(rest.len())
        };
        let end = end_from(0);
        // The name of an endpoint that stands apart begins with a scheme.
        let end = match word.split_at(end).1.starts_with(SCHEME_END) {
            true => end_from(end + SCHEME_END.len()),
            false => end,
        };
        let (word, after) = word.split_at(end);
        let follows = after.chars().next();
        let in_quotes = matches!(
            (before, follows),
            (Some('"'), Some('"')) | (Some('\''), Some('\''))
        );
        let accused = follows == Some(':')
            && matches!(before, None | Some(' ' | '\n' | ',' | ';' | '(' | '['));
        if (in_quotes || accused)
            && let Some(name) = sent(word)
            && !found.contains(&name)
        {
            found.push(name);
            if found.len() == MAX_BLAMED {
                break;
            }
        }
        (rest, before) = (after, word.chars().next_back());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(message: &str) -> Vec<String> {
        let sent = ["shop", "cart", "http", "error"];
        let of = |name: &str| sent.contains(&name).then(|| Arc::from(name));
        blamed(message, of)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn envoys_lists_name_each_that_is_refused() {
        let text = "Error adding/updating cluster(s) shop: strict DNS needs names, cart: no such \
                    transport socket: tls.example, unknown: whatever";
        assert_eq!(names(text), ["shop", "cart"]);
        let text = "Error adding/updating listener(s) http: cannot bind '127.0.0.1:80': Address already in use\n\
                    cart: another\n";
        assert_eq!(names(text), ["http", "cart"]);
    }

    #[test]
    fn a_name_with_a_scheme_is_one() {
        let name = "xdstp://vitals/envoy.config.endpoint.v3.LbEndpoint/a.1/shop/dc1/192.0.2.1-80";
        let of = |word: &str| (word == name).then(|| Arc::from(name));
        let text = format!("Error adding/updating {name}: no such thing; see https://example/x");
        assert_eq!(blamed(&text, of).len(), 1);
        assert_eq!(blamed(&format!("bad '{name}'"), of).len(), 1);
        assert_eq!(blamed("a://", of).len(), 0);
    }

    #[test]
    fn a_dumped_field_names_it() {
        let text =
            r#"Proto constraint validation failed (field: ...): name: "shop" load_assignment {}"#;
        assert_eq!(names(text), ["shop"]);
        assert_eq!(names("Unexpected EDS cluster (expecting 'cart')"), ["cart"]);
    }

    #[test]
    fn a_name_that_is_only_contained_is_not_blamed() {
        for text in [
            "the shop is closed",
            "shop.example: no such host",
            "bad domain shop.example",
            "https://shop:80/",
            "'shop",
            "Error: no",
            "",
        ] {
            assert_eq!(names(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_text_of_names_blames_a_few() {
        let text: String = (0..1000).map(|n| format!("n{n}: no, ")).collect();
        let all = blamed(&text, |name| Some(name.into()));
        assert_eq!(all.len(), MAX_BLAMED);
    }
}
