#!/usr/bin/env python3
"""report_page.py REPORT: pages that the program `report` makes of run directories written here, read
as a browser reads them: well-formed, self-contained, with a chart, a table and its values for
everything that was measured."""

import html.parser
import json
import pathlib
import subprocess
import sys
import tempfile

VOID = {"meta", "br", "img", "input", "link", "hr"}


class Page(html.parser.HTMLParser):
    """Checks nesting, and keeps texts, attributes and the contents of scripts."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.faults, self.attributes, self.scripts, self.texts = [], [], [], [], []
        self.feed(text)
        if self.stack:
            self.faults.append(f"not closed: {self.stack}")

    def handle_starttag(self, tag, attributes):
        self.attributes.append((tag, dict(attributes)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.attributes.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if not self.stack or self.stack.pop() != tag:
            self.faults.append(f"{self.getpos()}: </{tag}> closes nothing")

    def handle_data(self, data):
        (self.scripts if self.stack and self.stack[-1] == "script" else self.texts).append(data)

    def values(self, name):
        return [a[name] for _, a in self.attributes if name in a]


def line(step, **more):
    values = {"step": step, "loss": 5.0 / step, "grad_norm": 1.0, "lr": 1e-3, "tokens": 64,
              "step_ms": 20.0, "data_ms": 1.0, "tokens_per_s": 3200.0, "roof_fraction": 0.5,
              "comm_exposed_ms": 5.0, "skipped_steps": 0}
    return json.dumps(values | more) + "\n"


def write_run(folder, steps, end="", name="a"):
    folder.mkdir(parents=True)
    lines = [line(s) for s in range(1, steps + 1)]
    lines.append(json.dumps({"step": steps, "valid_loss": 2.5, "valid_tokens": 9}) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines) + end)
    (folder / "config.yaml").write_text(f"name: {name}\nparallel: {{tp: 2, dp: 1, zero: 0}}\n")
    (folder / "run.json").write_text(json.dumps(
        {"startup": {"device": "a CPU of " + name}, "memory_bytes": {"weights": 4096, "activations": 512}}))
    label = {"phase": "step", "group": "tp", "ranks": 2, "op": "all_reduce", "dtype": "fp32",
             "calls": steps, "bytes": 8.0 * steps, "sent_bytes": 8.0 * steps, "ms": 1.0, "exposed_ms": 0.5}
    (folder / "traffic.json").write_text(json.dumps(
        {"first_step": 1, "last_step": steps, "micro_batches": steps, "rows": 64 * steps,
         "phases": [{"phase": "step", "calls": steps, "ms": 20.0 * steps},
                    {"phase": "step/fetch", "calls": steps, "ms": 5.0 * steps}],
         "labels": [label | {"label": f"layers.{i} g.forward"} for i in range(12)]}))


HARDWARE = """name: made up
kind: cpu
sources: []
ranks_per_host: 4
memory_gib: 8
reserved_gib: 0
peak_tflops: {fp32: 0}
matmul_tflops: {fp32: 0.1}
memory_gb_per_s: 10
range_us: 2
host_link: {latency_us: 10, gb_per_s: 5}
step_us: 0
uncertainty: 0.1
"""


def report(program, *arguments, code=0):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, f"{arguments}: exit {done.returncode}, not {code}: {done.stderr}"
    return done


def read(file):
    text = file.read_text()
    page = Page(text)
    assert not page.faults, f"{file}: {page.faults[:3]}"
    assert "{{" not in text.split("<script>")[0], f"{file}: a placeholder was left"
    # Self-contained: nothing to load, and no policy that would let it.
    assert not page.values("src"), page.values("src")
    assert all(href.startswith("#") for href in page.values("href")), page.values("href")
    assert any("default-src 'none'" in content for content in page.values("content"))
    ids = page.values("id")
    assert len(ids) == len(set(ids)), f"{file}: an id twice: {ids}"
    assert all(href[1:] in ids for href in page.values("href"))
    # Every chart can be reached, says what it shows, and has its values for the script and in a table.
    charts = {chart["id"]: chart for chart in json.loads(page.scripts[0])}
    drawn = page.values("data-chart")
    assert sorted(charts) == sorted(drawn), f"{sorted(charts)} {sorted(drawn)}"
    plots = [a for _, a in page.attributes if a.get("class") == "plot"]
    assert len(plots) == len(drawn) and all(p["tabindex"] == "0" and p["aria-label"] for p in plots)
    assert page.texts.count("Table") == len(drawn)
    for chart in charts.values():
        for curve in chart["lines"]:
            assert len(curve["x"]) == len(curve["y"]) == len(curve["at"]) <= 1000
            assert all(0 <= at <= 1000 for at in curve["at"])
    page.charts, page.text = charts, " ".join(page.texts)
    return page


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        warning = json.dumps({"step": 60, "warning": "straggler", "text": "rank 2 is <slow>"}) + "\n"
        write_run(root / "a", 60, end=warning + '{"step": 61, "lo')
        hostile = "</script><script>alert(1)</script>"
        write_run(root / "b" / "a", 30, name=f"'{hostile}'")

        out = report(program, root / "a").stdout
        page = read(root / "a" / "report.html")
        assert str(root / "a" / "report.html") in out
        for text in ("Loss", "Gradient norm", "Learning rate", "Tokens per second", "exposed communication",
                     "layers.* g.forward", "weights", "a CPU of a", "fetch", "25", "config.yaml of a", "held out",
                     "rank 2 is <slow>"):
            assert text in page.text, f"no {text!r} on the page"
        assert len(page.charts) == 8, sorted(page.charts)
        assert page.charts["loss"]["lines"][0]["x"][-1] == "60", page.charts["loss"]
        assert page.charts["loss"]["lines"][0]["y"][-1].startswith("0.083333"), page.charts["loss"]

        # Times are predicted for a machine that is named, or was measured.
        assert "a: no times are predicted: " in page.text, "no word of times"
        (root / "here.yaml").write_text(HARDWARE)
        report(program, root / "a", "--hardware", root / "here.yaml")
        page = read(root / "a" / "report.html")
        for text in ("Milliseconds of a step of rank 0; predicted for made up", "exposed communication"):
            assert text in page.text, f"no {text!r} on the page"
        assert "no times are predicted" not in page.text
        # One that is named and is not there is not left out in silence.
        assert "here.yml" in report(program, root / "a", "--hardware", root / "here.yml", code=2).stderr
        assert "made up" in read(root / "a" / "report.html").text, "an error took the older page"
        # A rank without peers has times too.
        write_run(root / "alone", 30)
        traffic = json.loads((root / "alone" / "traffic.json").read_text())
        (root / "alone" / "traffic.json").write_text(json.dumps(traffic | {"labels": []}))
        report(program, root / "alone", "--hardware", root / "here.yaml")
        assert "Milliseconds of a step of rank 0" in read(root / "alone" / "report.html").text

        # What cannot be read of a run costs its own section, not the page.
        def without_times(run):
            report(program, root / run, "--hardware", root / "here.yaml")
            page = read(root / run / "report.html")
            assert "Gradient norm" in page.text and "--against" not in page.text
            return page.text.split("no times are predicted: ")[1]

        write_run(root / "one", 1)
        assert "no step behind the first, which is never as fast: the run began, or went on, with step 1" in without_times("one")
        for run, key, value in (("no rows", "rows", None), ("text", "micro_batches", "many"),
                                ("labels", "labels", [{"phase": "step"}]), ("phases", "phases", [{}])):
            write_run(root / run, 30)
            traffic = json.loads((root / run / "traffic.json").read_text())
            (root / run / "traffic.json").write_text(json.dumps(traffic | {key: value}))
            assert "traffic.json is not as a run writes it" in without_times(run)
        write_run(root / "line", 30, end=line(31, comm_exposed_ms=None))
        assert "metrics.jsonl is not as a run writes it" in without_times("line")

        both = root / "both.html"
        report(program, root / "a", root / "b" / "a", "-o", both)
        page = read(both)
        assert "2 runs compared" in page.text and str(root / "b" / "a") in page.text
        assert "alert(1)" not in "".join(page.scripts)
        assert [curve["name"] for curve in page.charts["norm"]["lines"]] == ["A", "B"]
        assert "Settings that differ" in page.text

        # As little as a run can have left, and what is not finite.
        bare = root / "bare"
        bare.mkdir()
        (bare / "config.yaml").write_text("name: bare\n")
        report(program, bare)
        assert "no step" in read(bare / "report.html").text
        (bare / "metrics.jsonl").write_text(line(1, loss=None, grad_norm=None))
        report(program, bare)
        assert "loss" not in read(bare / "report.html").charts

        # A long run makes a page that a browser likes, and it is quick.
        long = root / "long"
        long.mkdir()
        with open(long / "metrics.jsonl", "w") as metrics:
            metrics.writelines(line(s) for s in range(1, 100001))
        report(program, long)
        assert (long / "report.html").stat().st_size < 1 << 20
        read(long / "report.html")

        assert "no such directory" in report(program, root / "none", code=2).stderr
        assert "is not a run directory" in report(program, root, code=2).stderr
        report(program, code=2)
        report(program, root / "a", "-o", root / "none" / "x.html", code=2)
    print("every page is whole")


main()
