//! Pictures: bars, curves, flows and flames, as SVG. What a picture shows stands beside it in words
//! or in a table, so that it is hidden from readers of a screen.

use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::Range;

/// How many colours there are.
const COLOURS: usize = 6;

/// A part of a bar.
pub(super) struct Part {
    /// The number of its kind, by which it has its colour.
    pub kind: usize,
    /// How large it is.
    pub value: f64,
    /// What it is, in words.
    pub said: String,
}

/// A bar: parts side by side.
pub(super) struct Bar {
    /// What it shows, before the words of its parts.
    pub name: String,
    /// The parts, from the left.
    pub parts: Vec<Part>,
    /// What is said if it has no part.
    pub empty: String,
    /// Whether it matters less than the others.
    pub quiet: bool,
}

/// Bars that belong together.
pub(super) struct Row {
    /// Whose they are.
    pub name: String,
    /// The bars.
    pub bars: Vec<Bar>,
    /// By what their lengths are divided; `None`: by the longest bar of all rows.
    pub most: Option<f64>,
}

/// Rows of bars with the names of the kinds.
pub(super) fn bars(caption: &str, kinds: &[&str], rows: &[Row]) -> Markup {
    let length = |bar: &Bar| bar.parts.iter().map(|part| part.value).sum::<f64>();
    let longest = rows.iter().flat_map(|row| &row.bars).map(length).fold(0.0, f64::max);
    html! {
        figure {
            figcaption { (caption) }
            @if !kinds.is_empty() {
                ul class="legend" {
                    @for (at, kind) in kinds.iter().enumerate() {
                        li { span class=(format!("swatch k{}", at % COLOURS)) {} (kind) }
                    }
                }
            }
            @for row in rows {
                div class="row" {
                    div class="name" { (row.name) }
                    div { @for bar in &row.bars { (of_bar(bar, row.most.unwrap_or(longest))) } }
                }
            }
        }
    }
}

fn of_bar(bar: &Bar, most: f64) -> Markup {
    let mut from = 0.0;
    let spans: Vec<(&Part, Range<f64>)> = bar
        .parts
        .iter()
        .map(|part| {
            let start = from;
            from += percent(part.value, most);
            (part, start..from)
        })
        .collect();
    let said: Vec<&str> = bar.parts.iter().map(|part| part.said.as_str()).collect();
    let said = if said.is_empty() { bar.empty.clone() } else { said.join(", ") };
    html! {
        div class=(if bar.quiet { "bar quiet" } else { "bar" }) {
            svg height="18" aria-hidden="true" {
                @for (part, span) in &spans {
                    rect class=(format!("k{}", part.kind % COLOURS)) x=(share(span.start)) y="1"
                        width=(share(span.end - span.start)) height="16" {
                        title { (part.said) }
                    }
                }
            }
            span class="said" { (bar.name) ": " (said) }
        }
    }
}

fn percent(value: f64, most: f64) -> f64 {
    if most > 0.0 { 100.0 * value / most } else { 0.0 }
}

fn share(percent: f64) -> String {
    format!("{percent:.3}%")
}

/// A line through points.
pub(super) struct Curve {
    /// What it shows.
    pub name: String,
    /// The points, by their first coordinate.
    pub points: Vec<(f64, f64)>,
}

const CURVES: (u32, u32) = (720, 320);

/// The colours of curves in what is drawn, which the page replaces by its own.
const DRAWN: [RGBColor; COLOURS] = [
    RGBColor(1, 0, 9),
    RGBColor(2, 0, 9),
    RGBColor(3, 0, 9),
    RGBColor(4, 0, 9),
    RGBColor(5, 0, 9),
    RGBColor(6, 0, 9),
];

/// Curves over one number; nothing without two points.
pub(super) fn curves(caption: &str, over: &str, of: &str, curves: &[Curve]) -> Markup {
    let points = curves.iter().map(|curve| curve.points.len()).max().unwrap_or(0);
    let svg = if points < 2 { None } else { drawn(over, of, curves).ok() };
    html! {
        @if let Some(svg) = svg {
            figure {
                figcaption { (caption) }
                div class="scroll" tabindex="0" role="region" aria-label=(caption) {
                    (PreEscaped(svg))
                }
            }
        }
    }
}

/// Curves as SVG, in the colours of the page.
fn drawn(over: &str, of: &str, curves: &[Curve]) -> Result<String, Box<dyn Error>> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let first = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
    let last = points().map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
    let most = points().map(|(_, y)| *y).fold(0.0, f64::max);
    let least = points().map(|(_, y)| *y).fold(0.0, f64::min);
    let top = if most > least { most + (most - least) * 0.05 } else { least + 1.0 };
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, CURVES).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .margin_right(170)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(first..last.max(first + 1.0), least..top)?;
        chart
            .configure_mesh()
            .x_desc(over)
            .y_desc(of)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 13))
            .draw()?;
        let ends = spread_out(curves, (least, top));
        for (at, (curve, end)) in curves.iter().zip(ends).enumerate() {
            let colour = DRAWN[at % COLOURS];
            let points = thinned(&curve.points);
            let dots: &[(f64, f64)] = if points.len() > MOST_DOTS { &[] } else { &points };
            chart.draw_series(dots.iter().map(|dot| Circle::new(*dot, 3, colour.filled())))?;
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
            let style = ("sans-serif", 13).into_font().color(&colour);
            let style = style.pos(Pos::new(HPos::Left, VPos::Center));
            let name = format!("\u{a0}{}", curve.name);
            chart.draw_series([Text::new(name, (last, end), style)])?;
        }
        root.present()?;
    }
    Ok(in_colours_of_the_page(&svg))
}

/// A curve has a dot at each point if it has at most so many.
const MOST_DOTS: usize = 40;

/// The most points of a curve that are drawn.
const MOST_POINTS: usize = 400;

/// Points at equal distances, if there are too many; the last one stays.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let every = points.len().div_ceil(MOST_POINTS).max(1);
    let kept = points.iter().step_by(every).copied();
    let last = points.last().filter(|_| every > 1).copied();
    kept.chain(last).collect()
}

/// Where the names of curves stand: beside their ends, without covering each other.
fn spread_out(curves: &[Curve], (least, top): (f64, f64)) -> Vec<f64> {
    let gap = (top - least) * 16.0 / f64::from(CURVES.1 - 60);
    let mut ends: Vec<(usize, f64)> = curves
        .iter()
        .enumerate()
        .map(|(at, curve)| (at, curve.points.last().map_or(least, |(_, y)| *y)))
        .collect();
    ends.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut places = vec![least; curves.len()];
    let mut free = f64::NEG_INFINITY;
    for (at, end) in ends {
        places[at] = end.max(free);
        free = places[at] + gap;
    }
    places
}

/// Colours that follow light and dark, and a size that follows the page.
fn in_colours_of_the_page(svg: &str) -> String {
    let mut text = svg.replace("#000000", "currentColor");
    for (at, RGBColor(red, green, blue)) in DRAWN.iter().enumerate() {
        text = text.replace(&format!("#{red:02X}{green:02X}{blue:02X}"), &format!("var(--k{at})"));
    }
    let (width, height) = CURVES;
    let size = format!("width=\"{width}\" height=\"{height}\"");
    text.replacen(&size, "class=\"wide\" aria-hidden=\"true\"", 1)
}

/// The most ends that a flow has on a side; more are put together.
const MOST_ENDS: usize = 8;

/// Who does something to whom: bands from the left to the right, as wide as they are frequent.
pub(super) fn flow(caption: &str, links: &[(String, String, u64)]) -> Markup {
    let links = with_few_ends(links);
    let all: u64 = links.values().sum();
    let mut sides: [BTreeMap<&str, u64>; 2] = Default::default();
    for ((from, to), times) in &links {
        *sides[0].entry(from).or_default() += times;
        *sides[1].entry(to).or_default() += times;
    }
    let ends = sides.iter().map(BTreeMap::len).max().unwrap_or(0);
    let (height, gap) = (40.0 + 34.0 * ends as f64, 20.0);
    let scale = (height - gap * ends as f64) / (all.max(1) as f64);
    let placed = sides.map(|side| {
        let mut next = gap / 2.0;
        let place = |(name, times): (&str, u64)| {
            let (start, size) = (next, times as f64 * scale);
            next += size + gap;
            (name.to_owned(), (start, size, times))
        };
        side.into_iter().map(place).collect::<BTreeMap<String, (f64, f64, u64)>>()
    });
    let mut used: [BTreeMap<String, f64>; 2] = Default::default();
    let mut bands = Vec::new();
    for (at, ((from, to), times)) in links.iter().enumerate() {
        let width = *times as f64 * scale;
        let mut middle = |side: usize, name: &String| {
            let start = placed[side].get(name).map_or(0.0, |(start, ..)| *start);
            let before = used[side].entry(name.clone()).or_default();
            *before += width;
            start + *before - width / 2.0
        };
        let (left, right) = (middle(0, from), middle(1, to));
        let path = format!("M230 {left:.1}C360 {left:.1} 360 {right:.1} 490 {right:.1}");
        bands.push((path, width.max(1.0), at % COLOURS, format!("{from} → {to}: {times}")));
    }
    html! {
        @if all > 0 {
            figure {
                figcaption { (caption) }
                div class="scroll" tabindex="0" role="region" aria-label=(caption) {
                    svg class="wide" aria-hidden="true" viewBox=(format!("0 0 720 {height:.0}")) {
                        @for (path, width, colour, said) in &bands {
                            path class="band" d=(path) stroke-width=(format!("{width:.1}"))
                                style=(format!("stroke:var(--k{colour})")) { title { (said) } }
                        }
                        @for (side, ends) in placed.iter().enumerate() {
                            @for (name, (start, size, times)) in ends {
                                text x=(if side == 0 { "224" } else { "496" })
                                    y=(format!("{:.1}", start + size / 2.0 + 4.0)) font-size="13" fill="currentColor"
                                    text-anchor=(if side == 0 { "end" } else { "start" }) {
                                    (short(name, 28)) " " (times)
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Links with the most frequent ends; all others are `others`.
fn with_few_ends(links: &[(String, String, u64)]) -> BTreeMap<(String, String), u64> {
    let kept = |name: &dyn Fn(&(String, String, u64)) -> &String| {
        let mut sums: BTreeMap<&String, u64> = BTreeMap::new();
        links.iter().for_each(|link| *sums.entry(name(link)).or_default() += link.2);
        let mut sums: Vec<(&String, u64)> = sums.into_iter().collect();
        sums.sort_by(|a, b| (b.1, a.0).cmp(&(a.1, b.0)));
        sums.truncate(MOST_ENDS);
        sums.into_iter().map(|(name, _)| name.clone()).collect::<Vec<String>>()
    };
    let (from, to) = (kept(&|link| &link.0), kept(&|link| &link.1));
    let mut sums = BTreeMap::new();
    for link in links.iter().filter(|link| link.2 > 0) {
        let end = |kept: &[String], name: &String| {
            if kept.contains(name) { name.clone() } else { "others".to_owned() }
        };
        *sums.entry((end(&from, &link.0), end(&to, &link.1))).or_default() += link.2;
    }
    sums
}

/// A text cut to so many characters.
pub(super) fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Functions that called each other, with how often each was met.
#[derive(Default)]
struct Flame {
    times: u64,
    below: BTreeMap<String, Flame>,
}

/// Boxes thinner than this share of the whole, in percent, are left out, with everything in them.
const THINNEST: f64 = 0.2;

/// The deepest level that is drawn.
const DEEPEST: usize = 40;

/// Stacks of functions, the outermost first, as boxes in each other.
pub(super) fn flame(caption: &str, stacks: &[(Vec<String>, u64)]) -> Markup {
    let mut root = Flame::default();
    for (stack, times) in stacks {
        root.times += times;
        let mut at = &mut root;
        for name in stack.iter().take(DEEPEST) {
            at = at.below.entry(name.clone()).or_default();
            at.times += times;
        }
    }
    let mut boxes = Vec::new();
    collect(&root, (0.0, root.times), 0, &mut boxes);
    let levels = boxes.iter().map(|flame| flame.level + 1).max().unwrap_or(0);
    html! {
        @if !boxes.is_empty() {
            figure class="flame" {
                figcaption { (caption) }
                svg width="100%" height=(levels * 20) aria-hidden="true" {
                    @for flame in &boxes {
                        svg x=(share(flame.from)) y=(flame.level * 20) width=(share(flame.width))
                            height="19" {
                            rect class=(format!("k{}", flame.level % COLOURS)) width="100%"
                                height="100%" {}
                            text x="3" y="14" { (flame.name) }
                            title { (flame.name) ": " (flame.times) }
                        }
                    }
                }
            }
        }
    }
}

struct FlameBox<'a> {
    name: &'a str,
    level: usize,
    from: f64,
    width: f64,
    times: u64,
}

fn collect<'a>(
    flame: &'a Flame,
    (mut from, all): (f64, u64),
    level: usize,
    boxes: &mut Vec<FlameBox<'a>>,
) {
    for (name, below) in &flame.below {
        let width = percent(below.times as f64, all as f64);
        if width >= THINNEST {
            boxes.push(FlameBox { name, level, from, width, times: below.times });
            collect(below, (from, all), level + 1, boxes);
        }
        from += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_have_the_colours_of_the_page_and_text_stays_text() {
        let curve = |name: &str, factor: f64| Curve {
            name: name.to_owned(),
            points: (1..5).map(|x| (f64::from(x), f64::from(x) * factor)).collect(),
        };
        let all = [curve("<b>one</b>", 1.0), curve("two", 1.1)];
        let page = curves("caption & <more>", "processes", "cycles", &all).into_string();
        assert!(page.contains("caption &amp; &lt;more&gt;"), "{page}");
        assert!(page.contains("&lt;b&gt;one") && !page.contains("<b>"), "{page}");
        assert!(page.contains("var(--k0)") && page.contains("var(--k1)"), "{page}");
        assert!(page.contains("class=\"wide\"") && !page.contains("#000000"), "{page}");
        assert_eq!(curves("c", "x", "y", &[]).into_string(), "", "nothing to draw");
    }

    #[test]
    fn of_many_points_some_are_drawn_and_the_last_one() {
        let points: Vec<(f64, f64)> = (0..10_001).map(|x| (f64::from(x), 1.0)).collect();
        let kept = thinned(&points);
        assert!(kept.len() <= MOST_POINTS + 1 && kept.len() > MOST_POINTS / 2);
        assert_eq!((kept.first(), kept.last()), (points.first(), points.last()));
        assert_eq!(thinned(&points[..3]), points[..3]);
    }

    #[test]
    fn names_of_curves_do_not_cover_each_other() {
        let curve = |end: f64| Curve { name: String::new(), points: vec![(0.0, 0.0), (1.0, end)] };
        let places = spread_out(&[curve(5.0), curve(5.0), curve(0.0)], (0.0, 10.0));
        assert_eq!((places[0], places[2]), (5.0, 0.0));
        assert!(places[1] > 5.5, "{places:?}");
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let part = |kind, value, said: &str| Part { kind, value, said: said.to_owned() };
        let bar =
            |parts| Bar { name: "needless".into(), parts, empty: "none".into(), quiet: false };
        let row = |name: &str, parts| Row { name: name.into(), bars: vec![bar(parts)], most: None };
        let rows = [
            row("a", vec![part(0, 1.0, "1 fault"), part(2, 3.0, "3 <copies>")]),
            row("b", vec![part(0, 2.0, "2 faults")]),
            row("c", Vec::new()),
        ];
        let page = bars("of each", &["faults"], &rows).into_string();
        for there in [
            "width=\"25.000%\"",
            "x=\"25.000%\"",
            "width=\"75.000%\"",
            "width=\"50.000%\"",
            "needless: 1 fault, 3 &lt;copies&gt;",
            "needless: none",
        ] {
            assert!(page.contains(there), "{there}: {page}");
        }
    }

    #[test]
    fn a_flow_has_every_link_and_few_ends() {
        let links: Vec<(String, String, u64)> =
            (0..20).map(|at| (format!("p{at}"), "victim".to_owned(), 20 - at)).collect();
        let kept = with_few_ends(&links);
        assert_eq!(kept.values().sum::<u64>(), (1..=20).sum::<u64>());
        assert_eq!(kept.len(), MOST_ENDS + 1, "{kept:?}");
        let page = flow("who", &links).into_string();
        assert!(page.contains("others → victim: 78") && page.contains("p0 20"), "{page}");
        assert_eq!(flow("who", &[]).into_string(), "");
    }

    #[test]
    fn a_flame_is_as_wide_as_its_stacks() {
        let stack = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let stacks = [(stack(&["main", "a"]), 3), (stack(&["main", "b<c>"]), 1)];
        let page = flame("sites", &stacks).into_string();
        assert!(
            page.contains("width=\"100.000%\"") && page.contains("width=\"75.000%\""),
            "{page}"
        );
        assert!(page.contains("x=\"75.000%\"") && page.contains("b&lt;c&gt;: 1"), "{page}");
    }
}
