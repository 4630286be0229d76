// Package diskcache stores evicted groups on disk. Fetches thus reach back minutes, also after a restart.
//
// The groups of a track are appended to segments, which are deleted as a whole when they are too old or too large in
// total. Each process has its own folder, which it locks; it takes over the folders of processes that have
// ended. A track's segments also name its publisher: another publisher's groups are deleted, never served.
package diskcache

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/origin"
)

// Config configures a Store.
type Config struct {
	Dir  string        `yaml:"dir"`  // "" means no cache on disk
	Size int64         `yaml:"size"` // bytes of all groups
	Age  time.Duration `yaml:"age"`  // of groups
}

// Defaults of Config.
const (
	DefaultSize = 10 << 30
	DefaultAge  = 10 * time.Minute
)

const (
	// Limits of a segment. Segments are small because they are deleted as a whole.
	segmentBytes = 32 << 20
	segmentShare = 16 // of Config.Size and Config.Age
	// maxQueued limits the bytes that wait to be written, maxGroups the groups in the index.
	maxQueued = 32 << 20
	maxGroups = 1 << 20
	// groupOverhead is the size that a group counts in addition to its bytes.
	groupOverhead = 512
	// maxReaders limits the concurrent fetches from the disk. Each holds one group in memory.
	maxReaders = 32
	sweepEvery = time.Second
	// takeOverEvery is the interval between looks for folders of processes that have ended.
	takeOverEvery = 30 * time.Second
	retryAfter    = 10 * time.Second // a failed write
	suffix        = ".segment"
	lockName      = "lock"
)

// Store is a cache on disk. Its methods are safe for concurrent use.
type Store struct {
	log     *slog.Logger
	root    string
	dir     string // this process's
	lock    *os.File
	readers chan struct{}
	queue   chan job
	done    chan struct{}
	running sync.WaitGroup
	closed  sync.Once

	queued                                        atomic.Int64
	written, read, dropped, damaged, failedWrites atomic.Uint64

	mu     sync.Mutex
	cfg    Config
	tracks map[string]*Track // by name; those in use and those with groups
	next   uint64            // number of the next segment
	bytes  int64             // of all groups, with overhead
	groups int
	doomed []string // files to delete
}

// segment is a file of a track.
type segment struct {
	path    string
	file    *os.File // nil once deleted
	number  uint64
	began   time.Time
	newest  time.Time
	size    int64
	bytes   int64 // as counted in Store.bytes
	entries []entry
	users   int  // open reads
	deleted bool // closed after the last read
}

// Track is a track with one publisher. A nil Track keeps nothing.
type Track struct {
	s        *Store
	name     string
	identity []byte

	segments []*segment // oldest first; guarded by Store.mu
	largest  uint64     // group
	idle     bool       // not in use
	since    time.Time  // of the publisher's first groups
}

// job is work of the writer.
type job struct {
	t    *Track
	g    origin.Group
	size int
	then func() // instead of a group
}

// Open opens or creates a cache. Close it at the end.
func Open(cfg Config, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cache.disk.dir: %w", err)
	}
	dir, err := os.MkdirTemp(cfg.Dir, "relay-")
	if err != nil {
		return nil, fmt.Errorf("cache.disk.dir: %w", err)
	}
	s := &Store{
		log: log, root: cfg.Dir, dir: dir, cfg: cfg, tracks: map[string]*Track{}, readers: make(chan struct{}, maxReaders),
		queue: make(chan job, 1<<12), done: make(chan struct{}),
	}
	if s.lock, err = lockFile(filepath.Join(dir, lockName), os.O_CREATE); err != nil {
		return nil, errors.Join(fmt.Errorf("cache.disk.dir: %w", err), os.RemoveAll(dir))
	}
	s.takeOver()
	s.running.Go(s.run)
	return s, nil
}

// SetConfig changes the size and age. s may be nil.
func (s *Store) SetConfig(cfg Config) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Size, s.cfg.Age = cfg.Size, cfg.Age
}

// Close writes the queued groups and closes the files. The next process takes them over.
func (s *Store) Close() {
	if s == nil {
		return
	}
	s.closed.Do(func() {
		ended := make(chan struct{})
		s.queue <- job{then: func() { close(ended) }}
		<-ended
		close(s.done)
		s.running.Wait() // it may be writing a later group
		s.purge()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, t := range s.tracks {
			for _, g := range t.segments {
				s.release(g, true)
			}
			t.segments = nil
		}
		clear(s.tracks)
		_ = s.lock.Close() // nothing was written
	})
}

// Track returns the track of a publisher. Groups of the same publisher, up to largest, are served again unless
// fresh is set; other publishers' groups are deleted. It replaces an earlier Track of the same name.
func (s *Store) Track(name moqt.TrackName, publisher string, fresh bool, largest *moqt.Location) *Track {
	if s == nil {
		return nil
	}
	t := &Track{s: s, name: name.String(), identity: identityOf(name, publisher), since: time.Now()}
	if len(t.identity) > maxIdentity {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.tracks[t.name]
	s.tracks[t.name] = t
	if before == nil {
		return t
	}
	if !fresh && bytes.Equal(before.identity, t.identity) && largest != nil && before.largest <= largest.Group {
		t.segments, t.largest = before.segments, before.largest
		if !before.since.IsZero() { // of this process
			t.since = before.since
		}
		before.segments = nil
	}
	s.remove(before, len(before.segments))
	return t
}

// remove deletes the n oldest segments of a track. The caller holds s.mu.
func (s *Store) remove(t *Track, n int) {
	for _, g := range t.segments[:n] {
		s.doomed = append(s.doomed, g.path)
		s.bytes -= g.bytes
		s.groups -= len(g.entries)
		s.release(g, true)
	}
	t.segments = slices.Delete(t.segments, 0, n)
}

// purge deletes the files of removed segments.
func (s *Store) purge() {
	s.mu.Lock()
	paths := s.doomed
	s.doomed = nil
	s.mu.Unlock()
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			s.log.Warn("cache on disk: file not deleted", "err", err)
		}
	}
}

// Close records that the track is no longer used. Its groups stay until they are too old.
func (t *Track) Close() {
	if t == nil {
		return
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.idle = true
}

// release closes a segment's file once it is deleted and no longer read. The caller holds s.mu.
func (s *Store) release(g *segment, deleted bool) {
	g.deleted = g.deleted || deleted
	if g.deleted && g.users == 0 && g.file != nil {
		_ = g.file.Close() // complete, or to be deleted
		g.file = nil
	}
}

// Put queues a group for the disk, or drops it if the queue is full. It does not block, and keeps the group's
// memory until it is written.
func (t *Track) Put(g origin.Group) {
	if t == nil {
		return
	}
	if g.Arrived.Before(t.since) {
		return // from an earlier publisher
	}
	s, size := t.s, bodySize(&g)
	if size > maxRecord || s.queued.Add(int64(size)) > maxQueued {
		if size <= maxRecord {
			s.queued.Add(-int64(size))
		}
		s.dropped.Add(1)
		return
	}
	select {
	case s.queue <- job{t: t, g: g, size: size}:
	case <-s.done:
	default:
		s.queued.Add(-int64(size))
		s.dropped.Add(1)
	}
}

// run writes groups and deletes old segments until the store is closed.
func (s *Store) run() {
	sweep, others := time.NewTicker(sweepEvery), time.NewTicker(takeOverEvery)
	defer sweep.Stop()
	defer others.Stop()
	var failed time.Time
	var buffer []byte
	for {
		select {
		case j := <-s.queue:
			if j.then != nil {
				j.then()
				continue
			}
			s.queued.Add(-int64(j.size))
			if !failed.IsZero() && time.Since(failed) < retryAfter {
				s.dropped.Add(1)
				continue
			}
			buffer = appendRecord(buffer[:0], &j.g)
			switch err := s.write(j.t, &j.g, buffer); {
			case err != nil:
				if failed.IsZero() {
					s.log.Error("cache on disk: cannot write; older objects come from memory or the publisher", "err", err)
				}
				failed = time.Now()
				s.failedWrites.Add(1)
				s.dropped.Add(1)
			case !failed.IsZero():
				failed = time.Time{}
				s.log.Info("cache on disk: writing again")
			}
		case <-sweep.C:
			s.sweep(time.Now())
			s.purge()
		case <-others.C:
			s.takeOver()
		case <-s.done:
			return
		}
	}
}

// write appends a record to a track's newest segment, or a new one.
func (s *Store) write(t *Track, g *origin.Group, record []byte) error {
	s.mu.Lock()
	if s.tracks[t.name] != t || t.has(g.ID) { // replaced by another publisher's, or kept already
		s.mu.Unlock()
		return nil
	}
	now := time.Now()
	var last *segment
	if n := len(t.segments); n > 0 {
		last = t.segments[n-1]
		full := last.size+int64(len(record)) > min(segmentBytes, s.cfg.Size/segmentShare)
		if full || now.Sub(last.began) > s.cfg.Age/segmentShare {
			last = nil
		}
	}
	number := s.next
	if last == nil {
		s.next++
	}
	s.mu.Unlock()

	fresh := last == nil
	if fresh {
		var err error
		if last, err = s.create(t, number, now); err != nil {
			return err
		}
	}
	at := last.size // only the writer changes it
	if _, err := last.file.WriteAt(record, at); err != nil {
		_ = last.file.Truncate(at) // otherwise the next process finds the damage
		if fresh {
			_ = errors.Join(last.file.Close(), os.Remove(last.path)) // has nothing
		}
		return err
	}
	s.written.Add(uint64(len(record)))
	e := entry{
		group: g.ID, arrived: g.Arrived, offset: at, size: uint32(len(record) - recordHead),
		sum: binary.LittleEndian.Uint32(record[20:]),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tracks[t.name] != t {
		if fresh {
			_ = errors.Join(last.file.Close(), os.Remove(last.path)) // another publisher took over
		}
		return nil
	}
	if fresh {
		t.segments = append(t.segments, last)
	}
	last.size += int64(len(record))
	last.add(e)
	last.bytes += int64(len(record)) + groupOverhead
	s.bytes += int64(len(record)) + groupOverhead
	s.groups++
	t.largest = max(t.largest, g.ID)
	return nil
}

// create creates a segment file.
func (s *Store) create(t *Track, number uint64, now time.Time) (*segment, error) {
	path := filepath.Join(s.dir, fmt.Sprintf("%020d%s", number, suffix))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	head := appendFileHead(nil, t.identity)
	if _, err := f.WriteAt(head, 0); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return &segment{path: path, file: f, number: number, began: now, newest: now, size: int64(len(head))}, nil
}

// add adds an entry in the order of groups.
func (g *segment) add(e entry) {
	i, _ := slices.BinarySearchFunc(g.entries, e.group, func(e entry, id uint64) int { return cmp.Compare(e.group, id) })
	g.entries = slices.Insert(g.entries, i, e)
	if e.arrived.After(g.newest) {
		g.newest = e.arrived
	}
}

// has reports whether a group is on the disk. The caller holds s.mu.
func (t *Track) has(id uint64) bool {
	for _, g := range t.segments {
		if _, ok := g.find(id); ok {
			return true
		}
	}
	return false
}

func (g *segment) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(g.entries, id, func(e entry, id uint64) int { return cmp.Compare(e.group, id) })
}

// sweep deletes segments above the age limit, and the oldest ones above the limits on bytes and groups.
func (s *Store) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, t := range s.tracks {
		n := 0
		for n < len(t.segments) && now.Sub(t.segments[n].newest) > s.cfg.Age {
			n++
		}
		s.remove(t, n)
		if t.idle && len(t.segments) == 0 {
			delete(s.tracks, name)
		}
	}
	for s.bytes > s.cfg.Size || s.groups > maxGroups {
		var oldest *Track
		for _, t := range s.tracks {
			if len(t.segments) > 0 && (oldest == nil || t.segments[0].number < oldest.segments[0].number) {
				oldest = t
			}
		}
		if oldest == nil {
			return
		}
		s.remove(oldest, 1)
	}
}

// takeOver moves the segments of processes that have ended to this process's folder, and reads their index.
func (s *Store) takeOver() {
	folders, err := os.ReadDir(s.root)
	if err != nil {
		s.log.Warn("cache on disk: cannot look for earlier content", "err", err)
		return
	}
	for _, d := range folders {
		dir := filepath.Join(s.root, d.Name())
		if !d.IsDir() || !strings.HasPrefix(d.Name(), "relay-") || dir == s.dir {
			continue
		}
		lock, err := lockFile(filepath.Join(dir, lockName), 0)
		if err != nil {
			continue // its process runs, or it is not a relay's
		}
		s.adopt(dir)
		_ = lock.Close() // nothing was written
		if err := errors.Join(os.Remove(lock.Name()), os.Remove(dir)); err != nil {
			s.log.Warn("cache on disk: folder not removed", "folder", dir, "err", err)
		}
	}
}

// adopt takes over the segments in a folder.
func (s *Store) adopt(dir string) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, f := range files {
		if _, err := strconv.ParseUint(strings.TrimSuffix(f.Name(), suffix), 10, 64); err != nil ||
			!strings.HasSuffix(f.Name(), suffix) || !f.Type().IsRegular() {
			continue
		}
		if err := s.adoptSegment(filepath.Join(dir, f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.damaged.Add(1)
			s.log.Warn("cache on disk: dropped part of a file", "file", f.Name(), "err", err)
		}
		_ = os.Remove(filepath.Join(dir, f.Name())) // it was moved unless it has nothing to keep
	}
}

// adoptSegment takes over a segment. An error means that it is damaged; what precedes the damage is kept.
func (s *Store) adoptSegment(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	identity, list, end, err := readSegment(f, info.Size())
	name, _, named := bytes.Cut(identity, []byte{0})
	if len(list) == 0 || !named {
		return errors.Join(err, f.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tracks[string(name)]
	if t == nil {
		t = &Track{s: s, name: string(name), identity: identity, idle: true}
		s.tracks[t.name] = t
	}
	if !t.idle || !bytes.Equal(t.identity, identity) {
		// In use by this process, or of another publisher: which one is newer is unknown.
		return errors.Join(err, f.Close())
	}
	if e := f.Truncate(end); e != nil {
		return errors.Join(err, e, f.Close())
	}
	g := &segment{
		path: filepath.Join(s.dir, fmt.Sprintf("%020d%s", s.next, suffix)), file: f, number: s.next, size: end,
		began: list[0].arrived,
	}
	s.next++
	if e := os.Rename(path, g.path); e != nil {
		return errors.Join(err, e, f.Close())
	}
	for _, e := range list {
		if !t.has(e.group) {
			g.add(e)
		}
		g.bytes += recordHead + int64(e.size) + groupOverhead
		t.largest = max(t.largest, e.group)
	}
	s.bytes += g.bytes
	s.groups += len(g.entries)
	t.segments = append(t.segments, g)
	return err
}

// Stats are a store's counters.
type Stats struct {
	Bytes   int64  // of all groups, with some overhead each
	Groups  int    // on the disk
	Written uint64 // bytes
	Read    uint64 // bytes served
	Dropped uint64 // groups not written: too large, or the disk too slow or full
	Damaged uint64 // files and groups that were not intact
}

// Stats returns the current counters. They are 0 if s is nil.
func (s *Store) Stats() (st Stats) {
	if s == nil {
		return st
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{s.bytes, s.groups, s.written.Load(), s.read.Load(), s.dropped.Load(), s.damaged.Load()}
}
