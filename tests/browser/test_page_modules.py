"""The page's pure functions, called in the browser."""

from __future__ import annotations

from browser.conftest import OpenView, Site

CALLS = [
    ("charts/smoothing.js", "its.smoothed([1, 1, 1], 0.9)", [1, 1, 1]),
    ("charts/smoothing.js", "its.smoothed([0, null, 2], 0.5)", [0, None, 1.3333333333333333]),
    ("charts/smoothing.js", "its.smoothed([0, 4], 0.5, [1, 1000])", [0, 4]),
    ("charts/smoothing.js", "its.smoothed([0, 3, 3, 3], 0.5).at(-1) - its.smoothed([0, 3], 0.5, [1, 3]).at(-1)", 0),
    ("charts/smoothing.js", "[0, 0.5, 0.9, 0.99].map(its.numPointsBefore)", [0, 7, 44, 459]),
    ("charts/plot.js", "its.within([-5, 5], [0, 100])", [0, 10]),
    ("charts/plot.js", "its.within([-5, 500], [0, 100])", None),
    ("parts/text.js", "[0.00012, 1234567, 0.5, 1e12, 'NaN', null].map((one) => its.formatNumber(one))",
     ["1.2e-4", "1,234,567", "0.5", "1e12", "NaN", ""]),
    ("parts/text.js", "[0, 1536, 5 * 2 ** 30].map(its.formatSize)", ["0 B", "1.5 KiB", "5.0 GiB"]),
    ("parts/text.js", "[4.25, 61, 7322, 200000].map(its.formatDuration)",
     ["4.3 s", "1 min 1 s", "2 h 2 min", "2 d 7 h"]),
    ("parts/saving.js", "its.csvText([['=1+1', -1, 'a,\"b'], [null, true, '-x']])",
     "'=1+1,-1,\"a,\"\"b\"\r\n,true,'-x\r\n"),
    ("parts/ansi.js", "its.piecesOf('\\u001b[31mred\\u001b[0m \\u001b[1;4mboth\\u001b[22m\\u001b[2K')",
     [{"text": "red", "style": "ansi-1"}, {"text": " ", "style": ""},
      {"text": "both", "style": "ansi-bold ansi-underlined"}]),
    ("parts/difference.js", "its.linesOfDifference('a\\nb\\n', 'a\\nc\\n').map(({ kind, text }) => kind + ' ' + text)",
     ["same a", "removed b", "added c"]),
    ("views/runs/order.js",
     "its.inOrder([3, null, 1].map((x) => ({ values: { x } })), '-x').map(({ values }) => values.x)",
     [3, 1, None]),
    ("charts/search/scale.js", "[1, 10, 100].map(its.scaleOf('lr', [1, 100]).place)", [0, 0.5, 1]),
    ("charts/search/scale.js", "['b', 'a', 'c'].map(its.scaleOf('kind', ['a', 'b', 'c']).place)", [0.5, 0, 1]),
    ("charts/search/scale.js", "its.readableOn('rgb(20 20 60)')", "#ffffff"),
]  # fmt: skip


def test_pure_functions_give_what_is_expected(site: Site, open_view: OpenView) -> None:
    """Each is called with literals."""
    page = open_view(site, "queue")

    for module, call, expected in CALLS:
        found = page.evaluate(f"import('./{module}').then((its) => {call})")
        assert found == expected, call


def test_a_task_that_is_wanted_while_it_runs_runs_once_more(site: Site, open_view: OpenView) -> None:
    """However often it was wanted."""
    page = open_view(site, "queue")

    num_runs = page.evaluate(
        """async () => {
          const { coalesced } = await import("./state/coalescing.js");
          let numRuns = 0;
          const run = coalesced(async () => { numRuns += 1; await new Promise((done) => setTimeout(done, 20)); });
          await Promise.all([run(), run(), run(), run()]);
          return numRuns;
        }"""
    )

    assert num_runs == 2
