// Package live serves a page that shows the operator a relay's viewers and tracks, with rates, losses
// and their reasons, and its cluster as a map. The page reads the API of package admin.
package live

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed page
var files embed.FS

// Handler serves the page at /live/.
func Handler() http.Handler {
	dir, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // impossible: the path is constant
	}
	page := http.StripPrefix("/live/", http.FileServerFS(dir))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "+
			"'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		page.ServeHTTP(w, req)
	})
}
