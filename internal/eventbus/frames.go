package eventbus

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/oduflow/oduflow-salt/internal/msgpackwalk"
)

const (
	readBuffer = 64 << 10
	maxTag     = 1024 // longer ones are nobody's that we know
	maxPairs   = 16   // of the outer map; Salt sends two
	maxKeyName = 16
)

// FrameError says that the stream can't be followed any further.
type FrameError struct {
	Reason Reason // ReasonGarbled, ReasonTooLarge or ReasonCut
	Detail string
	Cause  error
}

// Error implements error.
func (e *FrameError) Error() string {
	s := fmt.Sprintf("event bus frame %s: %s", e.Reason, e.Detail)
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *FrameError) Unwrap() error { return e.Cause }

// errOverrun: an element goes on beyond its frame. With lengths before each
// frame the event is bad and the stream is fine; without, it is too large.
var errOverrun = errors.New("an element goes on beyond its frame")

// errMsgpack: a byte that begins no msgpack value.
var errMsgpack = errors.New("not msgpack")

// frameKind is what one frame turned out to be.
type frameKind uint8

const (
	frameEvent frameKind = iota + 1
	frameSkipped
	frameBad
	frameOversized
)

// frameReader takes the frames of one connection apart. It reads on without
// keeping what isn't wanted: a frame of 64 MiB costs its bytes, not its size
// in memory.
type frameReader struct {
	r        *bufio.Reader
	want     func(string) bool
	maxFrame int64
	maxBody  int64

	known    bool // the framing is known
	prefixed bool
	left     int64 // bytes that this frame may still have
}

func newFrameReader(r io.Reader, want func(string) bool, maxFrame, maxBody int64) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, readBuffer), want: want, maxFrame: maxFrame, maxBody: maxBody}
}

// next reads one frame. Its error is io.EOF or the connection's own between
// two frames, and a *FrameError within one.
func (f *frameReader) next() (Event, frameKind, error) {
	first, err := f.r.Peek(1)
	if err != nil {
		return Event{}, 0, err
	}
	if !f.known {
		f.known, f.prefixed = true, first[0] < 0x80
	}
	if f.prefixed {
		return f.nextPrefixed()
	}
	if !msgpackwalk.IsMap(first[0]) {
		return Event{}, 0, &FrameError{ReasonGarbled, "no map where a frame begins", nil}
	}
	f.left = f.maxFrame
	ev, kind, err := f.frame()
	switch {
	case err == nil:
		return ev, kind, nil
	case errors.Is(err, errOverrun):
		return Event{}, 0, &FrameError{ReasonTooLarge, "beyond the limit", nil}
	case errors.Is(err, errMsgpack):
		return Event{}, 0, &FrameError{ReasonGarbled, "inside of a frame", err}
	}
	return Event{}, 0, cut(err)
}

// nextPrefixed reads a length and what it announces. Whatever is wrong inside
// of that is one bad event.
func (f *frameReader) nextPrefixed() (Event, frameKind, error) {
	head, err := f.r.Peek(4)
	if err != nil {
		return Event{}, 0, cut(err)
	}
	length := int64(binary.BigEndian.Uint32(head))
	switch {
	case length > f.maxFrame && head[0] >= 0x80:
		return Event{}, 0, &FrameError{ReasonGarbled, "no length where a frame begins", nil}
	case length > f.maxFrame:
		return Event{}, 0, &FrameError{ReasonTooLarge, "beyond the limit", nil}
	}
	_, _ = f.r.Discard(4) // peeked
	f.left = length
	ev, kind, err := f.frame()
	if errors.Is(err, errOverrun) || errors.Is(err, errMsgpack) {
		kind, err = frameBad, nil
	}
	if err != nil {
		return Event{}, 0, cut(err)
	}
	if f.left > 0 {
		// What follows the map in its frame is no event of ours.
		if kind == frameEvent {
			kind = frameBad
		}
		if err := f.discard(f.left); err != nil {
			return Event{}, 0, cut(err)
		}
	}
	if kind != frameEvent {
		ev = Event{}
	}
	return ev, kind, nil
}

// cut says that the connection ended within a frame.
func cut(err error) error {
	var already *FrameError
	if errors.As(err, &already) {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &FrameError{ReasonCut, "the connection ended inside of a frame", err}
}

// frame reads one map {head, body} to its end.
func (f *frameReader) frame() (Event, frameKind, error) {
	h, err := f.header()
	if err != nil {
		return Event{}, 0, err
	}
	if h.Kind != msgpackwalk.Map {
		return Event{}, frameBad, f.skipRest(h)
	}
	if h.Count > 2*maxPairs {
		return Event{}, frameBad, f.skipRest(h)
	}
	var ev Event
	kind, bodies := frameBad, 0
	for range h.Count / 2 {
		name, err := f.keyName()
		if err != nil {
			return Event{}, 0, err
		}
		if name != "body" {
			if err := f.skipValue(); err != nil {
				return Event{}, 0, err
			}
			continue
		}
		bodies++
		if ev, kind, err = f.body(); err != nil {
			return Event{}, 0, err
		}
	}
	if bodies != 1 {
		return Event{}, frameBad, nil
	}
	return ev, kind, nil
}

// keyName reads a key of the outer map, "" for one that we can't name.
func (f *frameReader) keyName() (string, error) {
	h, err := f.header()
	if err != nil {
		return "", err
	}
	if h.Kind != msgpackwalk.Text || h.Size > maxKeyName {
		return "", f.skipRest(h)
	}
	b, err := f.peek(h.Size)
	if err != nil {
		return "", err
	}
	name := string(b)
	return name, f.discard(h.Size)
}

// body reads the body: bin or str, depending on Salt's version. The data is
// taken into memory only if the tag is wanted.
func (f *frameReader) body() (Event, frameKind, error) {
	h, err := f.header()
	if err != nil {
		return Event{}, 0, err
	}
	if h.Kind != msgpackwalk.Text {
		return Event{}, frameBad, f.skipRest(h)
	}
	start, err := f.peek(min(h.Size, maxTag+2))
	if err != nil {
		return Event{}, 0, err
	}
	end := bytes.Index(start, []byte("\n\n"))
	if end <= 0 || !utf8.Valid(start[:end]) {
		return Event{}, frameBad, f.discard(h.Size)
	}
	tag := string(start[:end])
	size := h.Size - int64(end) - 2
	if !f.want(tag) {
		return Event{}, frameSkipped, f.discard(h.Size)
	}
	if size > f.maxBody {
		return Event{}, frameOversized, f.discard(h.Size)
	}
	if h.Size > f.left {
		return Event{}, 0, errOverrun
	}
	if err := f.discard(int64(end) + 2); err != nil {
		return Event{}, 0, err
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(f.r, data); err != nil {
		return Event{}, 0, cut(err)
	}
	f.left -= size
	return Event{Tag: tag, Data: data}, frameEvent, nil
}

// header reads the head of one msgpack value.
func (f *frameReader) header() (msgpackwalk.Header, error) {
	b, err := f.peek(1)
	if err != nil {
		return msgpackwalk.Header{}, err
	}
	n, ok := msgpackwalk.HeaderLen(b[0])
	if !ok {
		return msgpackwalk.Header{}, errMsgpack
	}
	b, err = f.peek(int64(n))
	if err != nil {
		return msgpackwalk.Header{}, err
	}
	h := msgpackwalk.Parse(b)
	return h, f.discard(int64(n))
}

func (f *frameReader) skipValue() error {
	h, err := f.header()
	if err != nil {
		return err
	}
	return f.skipRest(h)
}

// skipRest skips what follows a header, without recursion: a value nested a
// million times costs a counter.
func (f *frameReader) skipRest(h msgpackwalk.Header) error {
	pending := h.Count
	if err := f.discard(h.Size); err != nil {
		return err
	}
	for pending > 0 {
		// Each value has a byte at least.
		if pending > f.left {
			return errOverrun
		}
		h, err := f.header()
		if err != nil {
			return err
		}
		if err := f.discard(h.Size); err != nil {
			return err
		}
		pending += h.Count - 1
	}
	return nil
}

// peek gives the next n bytes of the frame; n is at most the buffer's size.
func (f *frameReader) peek(n int64) ([]byte, error) {
	if n > f.left {
		return nil, errOverrun
	}
	b, err := f.r.Peek(int(n))
	if err != nil {
		return nil, cut(err)
	}
	return b, nil
}

func (f *frameReader) discard(n int64) error {
	if n > f.left {
		return errOverrun
	}
	f.left -= n
	if _, err := f.r.Discard(int(n)); err != nil {
		return cut(err)
	}
	return nil
}
