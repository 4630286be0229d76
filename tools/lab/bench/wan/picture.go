package wan

import (
	"image"
	"image/draw"
	"image/jpeg"
	"os"
	"path/filepath"
	"strings"
)

// pictured are the codecs in pictures, from left to right.
var pictured = []string{layoutA, layoutW}

// picture draws the last shot's lossless cloud next to layout W's.
func (m *measurement) picture() error {
	k := len(m.shots) - 1
	if len(m.exact[k].grids) == 0 {
		return nil
	}
	fit, _ := m.exact[k].clouds(m.sequences)
	img := image.NewRGBA(image.Rect(0, 0, len(pictured)*viewWidth, viewHeight))
	for column, name := range pictured {
		for i, c := range codecs {
			if c.name != name {
				continue
			}
			view, err := m.totals[i].shots[k].closeUp(m.sequences, fit)
			if err != nil {
				return err
			}
			at := image.Rect(column*viewWidth, 0, (column+1)*viewWidth, viewHeight)
			draw.Draw(img, at, view, image.Point{}, draw.Src)
		}
	}
	m.pictures = append(m.pictures, picture{pictureFile(m.Name), img})
	return nil
}

// picture is an illustration.
type picture struct {
	file  string
	image *image.RGBA
}

func pictureFile(scene string) string { return "wan-" + strings.ReplaceAll(scene, " ", "-") + ".jpg" }

func (p picture) save(dir string) (err error) {
	f, err := os.Create(filepath.Join(dir, p.file))
	if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	return jpeg.Encode(f, p.image, &jpeg.Options{Quality: jpegQuality})
}
