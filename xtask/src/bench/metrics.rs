//! Prometheus' text format, as far as the measurements read it.
//!
//! In: a page. Out: sums of samples, and quantiles of the difference between two looks at a histogram.

use std::collections::BTreeMap;

/// One look at `/metrics`.
pub(super) struct Page(Vec<(String, f64)>);

impl Page {
    pub(super) fn parse(text: &str) -> Self {
        Self(
            text.lines()
                .filter(|line| !line.starts_with('#'))
                .filter_map(|line| {
                    let (series, value) = line.rsplit_once(' ')?;
                    Some((series.to_owned(), value.parse().ok()?))
                })
                .collect(),
        )
    }

    /// The sum of a metric's samples whose labels contain `label`.
    pub(super) fn sum(&self, name: &str, label: &str) -> f64 {
        self.series(name)
            .filter(|(labels, _)| labels.contains(label))
            .map(|(_, value)| value)
            .sum()
    }

    /// A histogram's cumulative counts by upper bound, in nanoseconds so that they order; all label sets together.
    fn buckets(&self, name: &str) -> BTreeMap<u64, f64> {
        let mut buckets = BTreeMap::new();
        for (labels, count) in self.series(&format!("{name}_bucket")) {
            let Some(bound) = labels
                .split_once("le=\"")
                .and_then(|(_, rest)| rest.split('"').next())
            else {
                continue;
            };
            let bound = match bound {
                "+Inf" => u64::MAX,
                seconds => nanoseconds(seconds.parse().unwrap_or(f64::INFINITY)),
            };
            *buckets.entry(bound).or_default() += count;
        }
        buckets
    }

    fn series<'p>(&'p self, name: &str) -> impl Iterator<Item = (&'p str, f64)> {
        self.0.iter().filter_map(move |(series, value)| {
            let labels = series.strip_prefix(name)?;
            (labels.is_empty() || labels.starts_with('{')).then_some((labels, *value))
        })
    }
}

/// The bucket bound, in seconds, below which a share of what was observed between two looks lies; `None` without observations.
pub(super) fn quantile(before: &Page, after: &Page, name: &str, share: f64) -> Option<f64> {
    let old = before.buckets(name);
    let new: Vec<(u64, f64)> = after
        .buckets(name)
        .into_iter()
        .map(|(bound, count)| (bound, count - old.get(&bound).copied().unwrap_or(0.0)))
        .collect();
    let total = new.last().map(|(_, count)| *count).filter(|n| *n > 0.0)?;
    new.into_iter()
        .find(|(_, count)| *count >= total * share)
        .map(|(bound, _)| seconds(bound))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bucket bounds are small and positive"
)]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn seconds(nanoseconds: u64) -> f64 {
    if nanoseconds == u64::MAX {
        f64::INFINITY
    } else {
        std::time::Duration::from_nanos(nanoseconds).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str =
        "l_bucket{le=\"0.001\"} 10\nl_bucket{le=\"0.01\"} 10\nl_bucket{le=\"+Inf\"} 10\n";
    const AFTER: &str = "# HELP l x\nl_bucket{le=\"0.001\"} 70\nl_bucket{le=\"0.01\"} 109\nl_bucket{le=\"+Inf\"} 110\n\
                         l_sum 3\nprobes_total{type=\"HTTP\",outcome=\"PASS\"} 5\nprobes_total{outcome=\"FAIL\"} 2\n";

    #[test]
    fn a_quantile_is_of_what_came_between_two_looks() {
        let (before, after) = (Page::parse(BEFORE), Page::parse(AFTER));
        assert_eq!(quantile(&before, &after, "l", 0.5), Some(0.001));
        assert_eq!(quantile(&before, &after, "l", 0.99), Some(0.01));
        assert_eq!(quantile(&before, &after, "l", 1.0), Some(f64::INFINITY));
        assert_eq!(quantile(&after, &after, "l", 0.5), None);
    }

    #[test]
    fn sums_are_by_label() {
        let page = Page::parse(AFTER);
        assert_eq!(page.sum("probes_total", ""), 7.0);
        assert_eq!(page.sum("probes_total", "outcome=\"FAIL\""), 2.0);
        assert_eq!(page.sum("probes", ""), 0.0);
    }
}
