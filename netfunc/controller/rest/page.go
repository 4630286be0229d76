package rest

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed page
var files embed.FS

// pageFiles serves the status page. Its headers forbid foreign resources and framing.
func pageFiles() http.Handler {
	dir, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // constant path
	}
	serve := http.FileServerFS(dir)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "status page is read-only", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy",
			"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
				"form-action 'none'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		serve.ServeHTTP(w, r)
	})
}
