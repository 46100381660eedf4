//! `vitals status --clients`: a line for every stream and type.
//!
//! In: `/v1/clients`. Out: a table. Versions are shown by their first letters: what matters is whether two are the same.

use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets};

use super::super::admin_api::AdminApi;
use super::{StatusArgs, lines};
use crate::admin::api::Fleet;
use crate::admin::clients::{Client, ClientType};

/// So many letters of a version are shown.
const VERSION: usize = 8;

/// So many of the names subscribed to are shown.
const NAMES: usize = 3;

/// So many letters of a client's message are shown.
const MESSAGE: usize = 160;

/// That the server has this fleet, or what to say.
pub(super) fn must_have(api: &AdminApi, fleet: &str) -> Result<Result<(), String>, ExitCode> {
    let fleets: Vec<Fleet> = api.fetch("/v1/fleets")?;
    if fleets.iter().any(|known| known.name == fleet) {
        return Ok(Ok(()));
    }
    let names: Vec<&str> = fleets.iter().map(|known| known.name.as_str()).collect();
    Ok(Err(format!(
        "--fleet: there is no fleet {fleet:?}; the server has: {}",
        names.join(", ")
    )))
}

/// The clients of `--fleet`, or all.
pub(super) fn fetch_of_fleet(api: &AdminApi, args: &StatusArgs) -> Result<Vec<Client>, String> {
    let mut clients: Vec<Client> = api.try_fetch("/v1/clients")?;
    if let Some(fleet) = &args.wait.fleet {
        clients.retain(|client| client.fleet.as_ref() == Some(fleet));
    }
    Ok(clients)
}

pub(super) fn table(clients: &[Client]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "NODE",
        "FLEET",
        "STREAM",
        "TYPE",
        "SUBSCRIBED",
        "SENT",
        "ACKED",
        "STANDS",
        "REFUSES",
    ]);
    for client in clients {
        let who = |kind: &str, rest: [String; 5]| {
            let fleet = client.fleet.as_deref().unwrap_or("-");
            let first = [
                client.node_id.clone(),
                fleet.into(),
                format!("{} {}", client.service, client.transport),
                kind.into(),
            ];
            first.into_iter().chain(rest).collect::<Vec<_>>()
        };
        if client.types.is_empty() {
            let nothing = "-".to_owned();
            table.add_row(who("-", std::array::from_fn(|_| nothing.clone())));
        }
        for (kind, of_type) in &client.types {
            let shown = [
                subscribed(of_type),
                version(of_type.sent_version.as_deref()),
                version(of_type.acked_version.as_deref()),
                stands(client, of_type),
                refusal(of_type),
            ];
            table.add_row(who(kind, shown));
        }
    }
    lines(&table, clients.is_empty().then_some("no clients"))
}

/// `acked`: it has all; `had it`: all, and nothing had to be sent, because it came with it; `unanswered n`; `refused`; `behind`:
/// something is still to be sent to its stream.
fn stands(client: &Client, of_type: &ClientType) -> String {
    match (&of_type.nack, of_type.unanswered) {
        (Some(_), _) => "refused".into(),
        (None, 0) if client.acked && of_type.sent_version.is_none() => "had it".into(),
        (None, 0) if client.acked || of_type.sent_version == of_type.acked_version => {
            "acked".into()
        }
        (None, 0) => "behind".into(),
        (None, n) => format!("unanswered {n}"),
    }
}

/// What a client refuses, in one line: `shop, cart: <its words>`.
pub(super) fn refusal(of_type: &ClientType) -> String {
    let Some(nack) = &of_type.nack else {
        return "-".into();
    };
    let message: String = nack.message.chars().take(MESSAGE).collect();
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match nack.resources.as_slice() {
        [] => message,
        names => format!("{}: {message}", names.join(", ")),
    }
}

fn subscribed(of_type: &ClientType) -> String {
    let shown: Vec<&str> = of_type
        .subscribed
        .iter()
        .take(NAMES)
        .map(|name| in_short(name))
        .collect();
    match of_type.subscribed_count.saturating_sub(shown.len()) {
        0 if shown.is_empty() => "-".into(),
        0 => shown.join(","),
        more => format!("{} +{more}", shown.join(",")),
    }
}

/// Of a collection (LEDS) what tells it from others: service, group, place.
fn in_short(name: &str) -> &str {
    name.strip_prefix("xdstp://")
        .and_then(|name| name.splitn(4, '/').nth(3))
        .unwrap_or(name)
}

fn version(version: Option<&str>) -> String {
    version.map_or_else(|| "-".into(), |text| text.chars().take(VERSION).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn of_a_collection_what_tells_it_from_others_is_shown() {
        let glob = "xdstp://vitals/envoy.config.endpoint.v3.LbEndpoint/abcdef.1/shop/dc1/r.z/*";
        assert_eq!(in_short(glob), "shop/dc1/r.z/*");
        assert_eq!(in_short("shop"), "shop");
        assert_eq!(in_short("xdstp://odd"), "xdstp://odd");
    }
    use crate::admin::clients::Nack;

    pub(in super::super) fn client(node: &str, acked: bool, of_type: ClientType) -> Client {
        Client {
            node_id: node.into(),
            node_cluster: "edge".into(),
            fleet: Some("edge".into()),
            transport: "DELTA".into(),
            service: "ADS".into(),
            connected_at: "2026-11-30T00:00:00.000Z".into(),
            user_agent: "envoy 1.40.0".into(),
            acked,
            types: [("Cluster".to_owned(), of_type)].into(),
        }
    }

    pub(in super::super) fn of_type(unanswered: usize, refused: Option<&str>) -> ClientType {
        ClientType {
            subscribed: vec!["*".into()],
            subscribed_count: 1,
            sent_version: Some("0123456789abcdef".into()),
            acked_version: None,
            unanswered,
            nack: refused.map(|message| Nack {
                version: "0123456789abcdef".into(),
                message: message.into(),
                resources: vec!["shop".into()],
                at: "2026-11-30T00:00:00.000Z".into(),
            }),
        }
    }

    #[test]
    fn a_line_says_where_a_type_stands_and_what_is_refused() {
        let rows = [
            client("one", false, of_type(2, None)),
            client("two", false, of_type(0, Some("Error\n no"))),
            client("three", true, of_type(0, None)),
            client(
                "four",
                true,
                ClientType {
                    sent_version: None,
                    ..of_type(0, None)
                },
            ),
        ];
        let text = table(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[1].contains("unanswered 2"), "{text}");
        assert!(lines[2].ends_with("shop: Error no"), "{text}");
        assert!(lines[2].contains("refused"), "{text}");
        assert!(lines[3].contains("01234567"), "{text}");
        assert!(lines[3].contains(" acked"), "{text}");
        assert!(lines[4].contains(" had it"), "{text}");
        assert_eq!(table(&[]).lines().last(), Some("no clients"));
    }

    #[test]
    fn of_many_names_a_few_are_shown_and_the_rest_counted() {
        let many = ClientType {
            subscribed: (0..100).map(|n| n.to_string()).collect(),
            subscribed_count: 250,
            ..of_type(0, None)
        };
        assert_eq!(subscribed(&many), "0,1,2 +247");
    }
}
