package main

import (
	"bytes"
	"fmt"
	"html/template"
)

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"figure": func(v float64) string { return fmt.Sprintf("%.4g", v) },
	"change": func(v float64) string { return fmt.Sprintf("%+.1f %%", v) },
}).Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Holocast: benchmarks over time</title>
<style>
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { margin: 1rem auto; max-width: 62rem; padding: 0 1rem }
div { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
td, th { padding: .2rem .6rem; text-align: right; white-space: nowrap }
td:first-child, th:first-child { text-align: left; font-family: ui-monospace, monospace }
tr { border-bottom: 1px solid color-mix(in srgb, currentColor 15%, transparent) }
tr.moved td { font-weight: bold }
polyline { fill: none; stroke: currentColor; stroke-width: 1.5; vector-effect: non-scaling-stroke }
</style>
<h1>Benchmarks over time</h1>
<p>{{len .Runs}} runs, the newest at commit {{.Newest.Commit}} on {{.Newest.Time.Format "2006-01-02 15:04"}} UTC, on the
machine that the workflow received. <b>Bold</b>: unusually far from the median of the ten previous runs.</p>
<div><table>
<tr><th>figure<th>newest<th>median before<th>change<th>over time</tr>
{{range .Lines}}
<tr{{if .Moved}} class="moved"{{end}}><td>{{.Name}}<td>{{figure .Newest}}<td>{{.Before}}<td>
{{- if .Before}}{{change .Change}}{{end}}
<td><svg width="240" height="40" viewBox="0 -4 240 40" role="img"><title>{{.Ends}}</title>
<polyline points="{{.Points}}"/></svg></tr>
{{end}}</table></div>
</html>
`))

// draw renders a non-empty history.
func draw(runs []Run) ([]byte, error) {
	var b bytes.Buffer
	err := page.Execute(&b, struct {
		Runs   []Run
		Newest Run
		Lines  []Line
	}{runs, runs[len(runs)-1], lines(runs)})
	return b.Bytes(), err
}
