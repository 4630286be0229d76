package sphere

import (
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"holocast/internal/catalog"
	"holocast/internal/equirect"
	"holocast/internal/ffmpeg"
	"holocast/internal/loc"
	"holocast/internal/tile360"
)

// slotShown describes the viewport's content in one slot.
type slotShown struct {
	frame   int
	gaze    tile360.Vec
	quality map[int]int // best quality shown, by tile in the viewport
}

// job is a GoP to decode.
type job struct {
	sphere catalog.Sphere
	video  image.Point // size of the low-resolution pictures
	grid   tile360.Grid
	tracks map[key]*received
	slots  []slotShown
}

// backlog limits the GoPs waiting for the decoder.
const backlog = 8

// decoder decodes the displayed tiles GoP by GoP, after the viewer has displayed them. It skips
// GoPs if it falls behind.
type decoder struct {
	viewport  tile360.Viewport
	reference string
	log       *slog.Logger
	jobs      chan *job
	pending   sync.WaitGroup // unfinished jobs
	ctx       context.Context
	stop      context.CancelFunc
	done      chan struct{}

	mu      sync.Mutex
	psnr    []float64
	decoded int
	missed  int
	failed  error
	picture *image.YCbCr // left eye of the newest frame; colors and gaze belong to it
	colors  tile360.Colors
	gaze    tile360.Vec
}

func newDecoder(cfg Config, log *slog.Logger) (*decoder, error) {
	if _, err := ffmpeg.Find("ffmpeg"); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	d := &decoder{
		viewport:  cfg.Viewport,
		reference: cfg.Reference,
		log:       log,
		jobs:      make(chan *job, backlog),
		ctx:       ctx,
		stop:      stop,
		done:      make(chan struct{}),
	}
	go d.run()
	return d, nil
}

func (d *decoder) close() {
	d.stop()
	<-d.done
}

// offer queues a GoP, or counts it as missed if the queue is full.
func (d *decoder) offer(j *job) {
	d.pending.Add(1)
	select {
	case d.jobs <- j:
	default:
		d.pending.Done()
		d.mu.Lock()
		d.missed++
		d.mu.Unlock()
	}
}

func (d *decoder) results() (psnr []float64, decoded, missed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]float64{}, d.psnr...), d.decoded, d.missed
}

// run decodes jobs until the decoder is closed.
func (d *decoder) run() {
	defer close(d.done)
	defer func() { // drop queued jobs
		for {
			select {
			case <-d.jobs:
				d.pending.Done()
			default:
				return
			}
		}
	}()
	var ref *reference
	defer func() {
		if ref != nil {
			ref.close()
		}
	}()
	for {
		var j *job
		select {
		case j = <-d.jobs:
		case <-d.ctx.Done():
			return
		}
		if d.reference != "" && ref == nil && d.failed == nil {
			var err error
			if ref, err = openReference(d.ctx, d.reference, &j.sphere); err != nil && d.ctx.Err() == nil {
				d.log.Error("could not read the reference video", "reference", d.reference, "err", err)
				d.fail(err)
			}
		}
		if err := d.decode(j, ref); err != nil && d.ctx.Err() == nil {
			d.log.Warn("could not decode a GoP", "err", err)
			d.mu.Lock()
			d.missed++
			d.mu.Unlock()
		}
		d.pending.Done()
	}
}

func (d *decoder) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = err
}

// planes holds the decoded frames of a track, each width×height in 4:2:0.
type planes struct {
	width, height int
	pictures      []byte
}

func (p *planes) frame(i int) []byte {
	n := p.width * p.height * 3 / 2
	if (i+1)*n > len(p.pictures) {
		return nil
	}
	return p.pictures[i*n : (i+1)*n]
}

// decode decodes the displayed tracks of a GoP, measures the PSNR of its slots and draws the last
// one.
func (d *decoder) decode(j *job, ref *reference) (err error) {
	dir, err := os.MkdirTemp("", "holocast-play-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	needed := map[key]bool{{-1, 0}: true}
	for _, s := range j.slots {
		for t, q := range s.quality {
			needed[key{t, q}] = true
		}
	}
	format := "yuv420p"
	if j.sphere.Color.FullRange {
		format = "yuvj420p" // otherwise FFmpeg converts to limited range
	}
	var inputs, outputs []string
	var order []key
	for k := range needed {
		r := j.tracks[k]
		if r == nil || r.config == nil {
			return fmt.Errorf("tile %d has no parameter sets", k.tile)
		}
		stream, err := loc.AppendAnnexBConfig(nil, r.config)
		if err != nil {
			return err
		}
		for _, f := range r.frames {
			if f.payload == nil {
				break
			}
			if stream, err = loc.AppendAnnexB(stream, f.payload); err != nil {
				return err
			}
		}
		n := len(order)
		file := filepath.Join(dir, strconv.Itoa(n))
		if err := os.WriteFile(file+".h264", stream, 0o600); err != nil {
			return err
		}
		inputs = append(inputs, "-f", "h264", "-i", file+".h264")
		outputs = append(
			outputs, "-map", strconv.Itoa(n)+":v", "-fps_mode", "passthrough", "-pix_fmt", format, "-f", "rawvideo",
			file+".yuv",
		)
		order = append(order, k)
	}
	if err := ffmpeg.Run(d.ctx, append(append([]string{"-threads", "1"}, inputs...), outputs...)...); err != nil {
		return err
	}
	eyes := j.sphere.Eyes()
	decoded := map[key]*planes{}
	for i, k := range order {
		b, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(i)+".yuv"))
		if err != nil {
			return err
		}
		p := &planes{pictures: b}
		if k.tile < 0 {
			p.width, p.height = j.video.X, j.video.Y
		} else {
			r := j.grid.Rect(k.tile)
			p.width, p.height = r.Dx(), r.Dy()*eyes
		}
		decoded[k] = p
	}
	canvas := image.NewYCbCr(image.Rect(0, 0, j.grid.Width, j.grid.Height), image.YCbCrSubsampleRatio420)
	var psnr []float64
	for i, s := range j.slots {
		low := decoded[key{-1, 0}]
		picture := low.frame(s.frame)
		if picture == nil {
			continue
		}
		if ref == nil && i < len(j.slots)-1 {
			continue // without a reference only the last slot is needed
		}
		for t := range j.grid.Tiles() {
			r := j.grid.Rect(t)
			if q, ok := s.quality[t]; ok {
				if tile := decoded[key{t, q}]; tile.frame(s.frame) != nil {
					paste(canvas, r, tile.frame(s.frame), tile.width, tile.height)
					continue
				}
			}
			enlarge(canvas, r, picture, low.width, low.height, eyes)
		}
		if ref != nil {
			source, err := ref.matching(picture, low.width, low.height/eyes)
			if err != nil {
				return err
			}
			sampler := tile360.NewSampler(tile360.Mono, 0, canvas.Rect.Max, d.viewport, s.gaze, 160, 160)
			psnr = append(psnr, tile360.PSNR(sampler.MSE(canvas, source)))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.decoded++
	if len(d.psnr) < maxSlots {
		d.psnr = append(d.psnr, psnr...)
	}
	d.picture, d.gaze = canvas, j.slots[len(j.slots)-1].gaze
	d.colors = tile360.Colors{BT709: j.sphere.Color.Matrix == "bt709", FullRange: j.sphere.Color.FullRange}
	return nil
}

// paste copies the left eye of a tile's frame into rectangle r of the canvas.
func paste(canvas *image.YCbCr, r image.Rectangle, picture []byte, width, height int) {
	cb := width * height
	cr := cb + width*height/4
	for y := range r.Dy() {
		copy(canvas.Y[canvas.YOffset(r.Min.X, r.Min.Y+y):], picture[y*width:(y+1)*width])
	}
	for y := range r.Dy() / 2 {
		at := canvas.COffset(r.Min.X, r.Min.Y+2*y)
		copy(canvas.Cb[at:], picture[cb+y*width/2:cb+(y+1)*width/2])
		copy(canvas.Cr[at:], picture[cr+y*width/2:cr+(y+1)*width/2])
	}
}

// enlarge fills rectangle r from the left eye of the low-resolution sphere with bilinear
// interpolation.
func enlarge(canvas *image.YCbCr, r image.Rectangle, picture []byte, width, height, eyes int) {
	full := canvas.Rect.Max
	scale := func(dst []byte, stride int, src []byte, w, h, fullW, fullH int, r image.Rectangle) {
		for y := r.Min.Y; y < r.Max.Y; y++ {
			fy := (float32(y)+0.5)*float32(h)/float32(fullH) - 0.5
			y0 := max(0, int(fy))
			y1, ty := min(h-1, y0+1), max(0, fy-float32(y0))
			for x := r.Min.X; x < r.Max.X; x++ {
				fx := (float32(x)+0.5)*float32(w)/float32(fullW) - 0.5
				x0 := max(0, int(fx))
				x1, tx := min(w-1, x0+1), max(0, fx-float32(x0))
				a := float32(src[y0*w+x0])*(1-tx) + float32(src[y0*w+x1])*tx
				b := float32(src[y1*w+x0])*(1-tx) + float32(src[y1*w+x1])*tx
				dst[y*stride+x] = byte(a*(1-ty) + b*ty + 0.5)
			}
		}
	}
	eye := height / eyes
	cb := width * height
	cr := cb + width*height/4
	scale(canvas.Y, canvas.YStride, picture, width, eye, full.X, full.Y, r)
	half := image.Rect(r.Min.X/2, r.Min.Y/2, r.Max.X/2, r.Max.Y/2)
	scale(canvas.Cb, canvas.CStride, picture[cb:], width/2, eye/2, full.X/2, full.Y/2, half)
	scale(canvas.Cr, canvas.CStride, picture[cr:], width/2, eye/2, full.X/2, full.Y/2, half)
}

// reference holds the left eye's luma of the source.
type reference struct {
	file          *os.File
	width, height int
	thumbs        [][]byte
	at            int
	picture       *image.YCbCr
}

const (
	thumbWidth, thumbHeight = 64, 32
	maxReference            = 4 << 30 // bytes of luma
)

// openReference decodes the source into a temporary file.
func openReference(ctx context.Context, input string, s *catalog.Sphere) (ref *reference, err error) {
	video, err := equirect.Open(ctx, input, equirect.Options{Width: s.Width, Height: s.Height})
	if err != nil {
		return nil, err
	}
	reader, err := video.Start(ctx)
	if err != nil {
		return nil, err
	}
	var sound sync.WaitGroup
	defer sound.Wait()
	defer reader.Close()
	if reader.HasAudio() { // unread sound would block the video
		sound.Go(func() {
			a, err := reader.Audio()
			for err == nil {
				_, err = a.Next()
			}
		})
	}
	f, err := os.CreateTemp("", "holocast-reference-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	ref = &reference{file: f, width: s.Width, height: s.Height, at: -1}
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	frame := video.NewFrame()
	for {
		err := reader.Next(frame)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if (len(ref.thumbs)+1)*s.Width*s.Height > maxReference {
			return nil, fmt.Errorf(
				"%s is too long for a reference: more than %d frames of %d×%d", input, len(ref.thumbs), s.Width, s.Height,
			)
		}
		eye := &frame.Eyes[0]
		for y := range s.Height {
			if _, err := f.Write(eye.Y[y*eye.YStride : y*eye.YStride+s.Width]); err != nil {
				return nil, err
			}
		}
		ref.thumbs = append(ref.thumbs, thumb(eye.Y, eye.YStride, s.Width, s.Height))
	}
	if len(ref.thumbs) == 0 {
		return nil, fmt.Errorf("%s contains no frames", input)
	}
	ref.picture = image.NewYCbCr(image.Rect(0, 0, s.Width, s.Height), image.YCbCrSubsampleRatio420)
	return ref, nil
}

func (r *reference) close() { _ = r.file.Close() }

// thumb downscales luma to thumbWidth×thumbHeight.
func thumb(pix []byte, stride, width, height int) []byte {
	sum, n := [thumbWidth * thumbHeight]uint32{}, [thumbWidth * thumbHeight]uint32{}
	for y := range height {
		row := y * thumbHeight / height * thumbWidth
		for x := range width {
			i := row + x*thumbWidth/width
			sum[i] += uint32(pix[y*stride+x])
			n[i]++
		}
	}
	t := make([]byte, len(sum))
	for i := range t {
		t[i] = byte(sum[i] / max(1, n[i]))
	}
	return t
}

// matching returns the source frame most similar to a low-resolution frame. Timestamps do not
// reveal the position in the source.
func (r *reference) matching(pix []byte, width, height int) (*image.YCbCr, error) {
	t := thumb(pix, width, width, height)
	best, least := 0, math.MaxInt
	for i, s := range r.thumbs {
		d := 0
		for k := range t {
			e := int(t[k]) - int(s[k])
			d += e * e
		}
		if d < least {
			best, least = i, d
		}
	}
	if best != r.at {
		if _, err := r.file.ReadAt(r.picture.Y, int64(best)*int64(r.width*r.height)); err != nil {
			return nil, err
		}
		r.at = best
	}
	return r.picture, nil
}

// Finish waits until all displayed GoPs are decoded or ctx is done.
func (v *Viewer) Finish(ctx context.Context) {
	if v.decoder == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		v.decoder.pending.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		v.decoder.stop()
		<-done
	}
}

// Picture draws the newest decoded viewport at the given width in pixels. It returns nil if there
// is none.
func (v *Viewer) Picture(width int) image.Image {
	if v.decoder == nil {
		return nil
	}
	d := v.decoder
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.picture == nil {
		return nil
	}
	height := int(math.Round(float64(width) * math.Tan(d.viewport.Height/2) / math.Tan(d.viewport.Width/2)))
	return tile360.NewSampler(tile360.Mono, 0, d.picture.Rect.Max, d.viewport, d.gaze, width, height).
		Draw(d.picture, d.colors)
}
