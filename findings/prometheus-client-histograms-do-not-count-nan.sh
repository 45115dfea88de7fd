#!/usr/bin/env bash
# One NaN, the rate or share of a batch that had nothing, makes the sum of a histogram of
# prometheus-client 0.26.0 NaN until the process ends, and is counted nowhere: neither in +Inf nor in
# the count, which its own summary and Go's client 1.23.2, for both kinds, do. The count says one
# observation less than there were, and each average of the histogram is NaN from then on.
# Expected: each observation is in the count and in the bucket +Inf, which is the same number.
# Seen, after 1 and NaN:
#   Python, histogram: count 1, sum NaN
#   Python, summary:   count 2, sum NaN
#   Go, histogram:     count 2, sum NaN
#   Go, summary:       count 2, sum NaN
# Needs Go.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet prometheus-client==0.26.0
cat > ask.py <<'END_OF_PROGRAM'
import prometheus_client

registry = prometheus_client.CollectorRegistry()
for kind in (prometheus_client.Histogram, prometheus_client.Summary):
    name = kind.__name__.lower()
    metric = kind(name, "-", registry=registry)
    metric.observe(1)
    metric.observe(float("nan"))
    count, total = (registry.get_sample_value(f"{name}_{what}") for what in ("count", "sum"))
    print(f"Python, {name + ':':10} count {count:.0f}, sum {str(total).replace('nan', 'NaN')}")
END_OF_PROGRAM
cat > main.go <<'END_OF_PROGRAM'
package main

import (
	"fmt"
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func main() {
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "histogram"})
	summary := prometheus.NewSummary(prometheus.SummaryOpts{Name: "summary"})
	for _, value := range []float64{1, math.NaN()} {
		histogram.Observe(value)
		summary.Observe(value)
	}
	var metric dto.Metric
	if err := histogram.Write(&metric); err != nil {
		panic(err)
	}
	one := metric.GetHistogram()
	fmt.Printf("Go, histogram:     count %d, sum %v\n", one.GetSampleCount(), one.GetSampleSum())
	if err := summary.Write(&metric); err != nil {
		panic(err)
	}
	two := metric.GetSummary()
	fmt.Printf("Go, summary:       count %d, sum %v\n", two.GetSampleCount(), two.GetSampleSum())
}
END_OF_PROGRAM
{
    go mod init ask
    go get github.com/prometheus/client_golang@v1.23.2
    go build -mod=mod -o ask .
} > build.log 2>&1
{
    venv/bin/python ask.py
    ./ask
} | tee seen
diff seen - <<'END_OF_SEEN'
Python, histogram: count 1, sum NaN
Python, summary:   count 2, sum NaN
Go, histogram:     count 2, sum NaN
Go, summary:       count 2, sum NaN
END_OF_SEEN
