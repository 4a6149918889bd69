package eventbus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/oduflow/oduflow-salt/internal/eventbus/bustest"
)

func all(string) bool { return true }

type read struct {
	kind frameKind
	ev   Event
}

// readAll reads a stream to its end.
func readAll(r io.Reader, want func(string) bool, maxFrame, maxBody int64) ([]read, error) {
	f := newFrameReader(r, want, maxFrame, maxBody)
	var out []read
	for {
		ev, kind, err := f.next()
		if err != nil {
			return out, err
		}
		out = append(out, read{kind, ev})
	}
}

// Recorded bytes of three Salt lines: both framings, found out from the bytes.
func TestRecordedFrames(t *testing.T) {
	frames := map[string]int{"3006": 8, "3007": 10, "3008": 8}
	for line := range bustest.Lines() {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"whole":        func(r io.Reader) io.Reader { return r },
			"byte by byte": iotest.OneByteReader,
			"in halves":    iotest.HalfReader,
		} {
			t.Run(line+" "+name, func(t *testing.T) {
				raw := bustest.Recorded(t, line)
				got, err := readAll(wrap(bytes.NewReader(raw)), all, DefaultMaxFrame, DefaultMaxBody)
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				if len(got) != frames[line] {
					t.Fatalf("%d frames, want %d", len(got), frames[line])
				}
				var pings, echoes, fixtures int
				for _, r := range got {
					if r.kind != frameEvent {
						t.Fatalf("kind %d", r.kind)
					}
					var data map[string]any
					if err := msgpack.Unmarshal(r.ev.Data, &data); err != nil {
						t.Fatalf("%s: %v", r.ev.Tag, err)
					}
					if strings.HasPrefix(r.ev.Tag, "oduflow/fixture/") {
						fixtures++
					}
					if !IsReturn(r.ev.Tag) {
						continue
					}
					ret, err := DecodeReturn(r.ev)
					if err != nil {
						t.Fatalf("%s: %v", r.ev.Tag, err)
					}
					if ret.Minion != "minion-1" || len(ret.JID) != 20 || !ret.Success || ret.Retcode != 0 {
						t.Fatalf("%+v", ret)
					}
					switch {
					case ret.Fun == "test.ping" && ret.Kind == KindBool && ret.Text == "":
						pings++
					case ret.Fun == "test.echo" && ret.Kind == KindString && len(ret.Text) == 3000:
						echoes++
					}
				}
				if pings != 1 || echoes != 1 || fixtures != 2 {
					t.Fatalf("%d pings, %d echoes, %d fixtures", pings, echoes, fixtures)
				}
			})
		}
	}
}

// A connection that ends anywhere within a frame is a cut, between two frames
// it is the end.
func TestCutAnywhere(t *testing.T) {
	for line := range bustest.Lines() {
		raw := bustest.Recorded(t, line)
		ends := map[int]bool{0: true}
		f := newFrameReader(bytes.NewReader(raw), all, DefaultMaxFrame, DefaultMaxBody)
		counted := 0
		for {
			if _, _, err := f.next(); err != nil {
				break
			}
			counted++
			ends[len(raw)-f.r.Buffered()] = true
		}
		// The last frames of the file are within one buffer, so the ends are exact there.
		for n := len(raw) - 9000; n <= len(raw); n++ {
			got, err := readAll(bytes.NewReader(raw[:n]), all, DefaultMaxFrame, DefaultMaxBody)
			var fe *FrameError
			switch {
			case ends[n] && !errors.Is(err, io.EOF):
				t.Fatalf("%s: %d bytes: %v", line, n, err)
			case !ends[n] && (!errors.As(err, &fe) || fe.Reason != ReasonCut):
				t.Fatalf("%s: %d bytes: %v", line, n, err)
			case len(got) > counted:
				t.Fatalf("%s: %d frames", line, len(got))
			}
		}
	}
}

func TestSkipByTag(t *testing.T) {
	for line := range bustest.Lines() {
		got, err := readAll(bytes.NewReader(bustest.Recorded(t, line)), IsReturn, DefaultMaxFrame, DefaultMaxBody)
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		events := 0
		for _, r := range got {
			switch r.kind {
			case frameEvent:
				events++
			case frameSkipped:
				if r.ev.Data != nil || r.ev.Tag != "" {
					t.Fatalf("%s: a skipped event has content", line)
				}
			case frameBad, frameOversized:
				t.Fatalf("%s: kind %d", line, r.kind)
			}
		}
		if events != 2 {
			t.Fatalf("%s: %d returns", line, events)
		}
	}
}

// Body errors skip one event and frame errors close the stream.
func TestBadEventsAndBadFrames(t *testing.T) {
	pack := func(v any) []byte {
		raw, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	nested := bytes.Repeat([]byte{0x91}, 200000)
	cases := []struct {
		name    string
		content []byte // what stands for the map
		bare    frameKind
		bareErr Reason
		prefix  frameKind
	}{
		{"no blank line", pack(map[string]any{"head": map[string]any{}, "body": []byte("salt/job/x")}), frameBad, "", frameBad},
		{"an empty body", pack(map[string]any{"body": []byte{}}), frameBad, "", frameBad},
		{"an empty tag", pack(map[string]any{"body": []byte("\n\n\x80")}), frameBad, "", frameBad},
		{"a tag that isn't UTF-8", pack(map[string]any{"body": []byte("a\xff\n\n\x80")}), frameBad, "", frameBad},
		{"a tag of 5,000 letters", pack(map[string]any{"body": bytes.Repeat([]byte("a"), 5000)}), frameBad, "", frameBad},
		{"a body that is a number", pack(map[string]any{"body": 7}), frameBad, "", frameBad},
		{"a body that is a map", pack(map[string]any{"body": map[string]any{"a": []any{1, 2}}}), frameBad, "", frameBad},
		{"no body", pack(map[string]any{"head": 1}), frameBad, "", frameBad},
		{"an empty map", pack(map[string]any{}), frameBad, "", frameBad},
		{"two bodies", []byte("\x82\xa4body\xc4\x04a\n\n\x80\xa4body\xc4\x04a\n\n\x80"), frameBad, "", frameBad},
		{"keys that are no text", pack(map[int]any{1: "x", 2: "y"}), frameBad, "", frameBad},
		{"a map of 20 pairs", pack(map[int]int{1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9, 10: 1, 11: 1, 12: 1, 13: 1, 14: 1, 15: 1, 16: 1, 17: 1, 18: 1, 19: 1, 20: 1}), frameBad, "", frameBad},
		{"200,000 levels in the head", append(append([]byte("\x82\xa4head"), append(nested, 0xc0)...), "\xa4body\xc4\x04a\n\n\x80"...), frameEvent, "", frameEvent},
		{"three parts only", pack(map[string]any{"body": []byte("salt/job/x\n\n\x80")}), frameEvent, "", frameEvent},
		{"head and body as str", pack(map[string]any{"body": "a\n\n\x80"}), frameEvent, "", frameEvent},
		{"body first", []byte("\x82\xa4body\xc4\x04a\n\n\x80\xa4head\x80"), frameEvent, "", frameEvent},
		{"a list", pack([]any{1, 2}), 0, ReasonGarbled, frameBad},
		{"a text", pack("body"), 0, ReasonGarbled, frameBad},
		{"the byte that is never used", []byte{0xc1}, 0, ReasonGarbled, frameBad},
		{"the same inside", []byte("\x81\xa4head\xc1"), 0, ReasonGarbled, frameBad},
		{"nothing", nil, frameEvent, "", frameBad}, // bare: the good frame itself
	}
	for _, c := range cases {
		for _, f := range bustest.Framings() {
			t.Run(c.name+" "+f.String(), func(t *testing.T) {
				good := bustest.Event(f, "good", map[string]any{})
				stream := append(append(append([]byte{}, good...), bustest.Envelope(f, c.content)...), good...)
				got, err := readAll(bytes.NewReader(stream), all, DefaultMaxFrame, DefaultMaxBody)
				if f == bustest.Bare && c.bareErr != "" {
					var fe *FrameError
					if !errors.As(err, &fe) || fe.Reason != c.bareErr || len(got) != 1 {
						t.Fatalf("%d frames, %v", len(got), err)
					}
					return
				}
				want, n := c.prefix, 3
				if f == bustest.Bare {
					want = c.bare
					if c.content == nil {
						n = 2
					}
				}
				if !errors.Is(err, io.EOF) || len(got) != n || got[1].kind != want || got[n-1].ev.Tag != "good" {
					t.Fatalf("%+v, %v", got, err)
				}
			})
		}
	}
}

func TestLyingLengths(t *testing.T) {
	good := bustest.Event(bustest.Prefixed, "good", map[string]any{})
	inner := good[4:]
	length := func(n int, b []byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(n)), b...)
	}
	cases := []struct {
		name   string
		stream []byte
		kinds  []frameKind
		reason Reason
	}{
		{"bytes after the map", append(length(len(inner)+3, append(bytes.Clone(inner), 1, 2, 3)), good...), []frameKind{frameBad, frameEvent}, ""},
		{"a body beyond its frame", append(length(8, []byte("\x81\xa4body\xc5\xff")), good...), []frameKind{frameBad, frameEvent}, ""},
		{"a body that announces more", append(length(12, []byte("\x81\xa4body\xc4\x09a\n\n\x80")), good...), []frameKind{frameBad, frameEvent}, ""},
		{"a list of 2^32-1 in the head", append(length(11, []byte("\x81\xa4head\xdd\xff\xff\xff\xff")), good...), []frameKind{frameBad, frameEvent}, ""},
		{"an empty frame", append(length(0, nil), good...), []frameKind{frameBad, frameEvent}, ""},
		{"beyond the limit", length(DefaultMaxFrame+1, nil), nil, ReasonTooLarge},
		{"a map where a length belongs", append(bytes.Clone(good), inner...), []frameKind{frameEvent}, ReasonGarbled},
		{"text", []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), nil, ReasonTooLarge},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := readAll(bytes.NewReader(c.stream), all, DefaultMaxFrame, DefaultMaxBody)
			var fe *FrameError
			if c.reason != "" && (!errors.As(err, &fe) || fe.Reason != c.reason) || c.reason == "" && !errors.Is(err, io.EOF) {
				t.Fatalf("%v", err)
			}
			var kinds []frameKind
			for _, r := range got {
				kinds = append(kinds, r.kind)
			}
			if !slices.Equal(kinds, c.kinds) {
				t.Fatalf("%v, want %v", kinds, c.kinds)
			}
		})
	}
}

// zeros is a stream without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A frame of 60 MB is read on without being kept, in both framings.
func TestLargeFramesAreNotKept(t *testing.T) {
	const size = 60 << 20
	for _, f := range bustest.Framings() {
		head := []byte("\x82\xa4head\x80\xa4body")
		head = binary.BigEndian.AppendUint32(append(head, 0xc6), size)
		head = append(head, "salt/job/1/ret/a\n\n"...)
		if f == bustest.Prefixed {
			total := len(head) + size - len("salt/job/1/ret/a\n\n")
			head = append(binary.BigEndian.AppendUint32(nil, uint32(total)), head...)
		}
		good := bustest.Event(f, "salt/job/2/ret/a", map[string]any{})
		for name, want := range map[string]func(string) bool{"skipped": func(tag string) bool { return strings.Contains(tag, "/2/") }, "oversized": all} {
			body := io.LimitReader(zeros{}, size-int64(len("salt/job/1/ret/a\n\n")))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, _ := readAll(io.MultiReader(bytes.NewReader(head), body, bytes.NewReader(good)), want, DefaultMaxFrame, DefaultMaxBody)
			runtime.ReadMemStats(&after)
			if len(got) != 2 || got[1].ev.Tag != "salt/job/2/ret/a" {
				t.Fatalf("%v %s: %+v", f, name, got)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
				t.Fatalf("%v %s: %d bytes of memory for a frame of %d", f, name, used, size)
			}
		}
	}
}

func FuzzFrames(f *testing.F) {
	for line := range bustest.Lines() {
		f.Add(bustest.Recorded(f, line)[:700])
	}
	for _, fr := range bustest.Framings() {
		f.Add(bustest.Frame(fr, []byte("salt/job/x"), true))
		f.Add(bustest.Frame(fr, []byte("salt/job/x\n\n\x80"), false))
		f.Add(bustest.Return(fr, "20261130181033417609", "m", "oduflow.start", "x"))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := readAll(bytes.NewReader(raw), all, 1<<20, 1<<16)
		if err == nil {
			t.Fatal("no end")
		}
		// How the bytes come in makes no difference.
		again, err2 := readAll(iotest.OneByteReader(bytes.NewReader(raw)), all, 1<<20, 1<<16)
		if len(got) != len(again) || err.Error() != err2.Error() {
			t.Fatalf("%d frames %v; %d frames %v", len(got), err, len(again), err2)
		}
		for _, r := range got {
			if r.kind == frameEvent {
				_, _ = DecodeReturn(r.ev)
			}
		}
	})
}

func FuzzDecodeReturn(f *testing.F) {
	for line := range bustest.Lines() {
		got, _ := readAll(bytes.NewReader(bustest.Recorded(f, line)), IsReturn, DefaultMaxFrame, DefaultMaxBody)
		for _, r := range got {
			f.Add(r.ev.Tag, r.ev.Data)
		}
	}
	f.Add("salt/job/x", []byte{0x80})
	f.Fuzz(func(t *testing.T, tag string, data []byte) {
		ret, err := DecodeReturn(Event{Tag: tag, Data: data})
		var de *DecodeError
		if err != nil && !errors.As(err, &de) {
			t.Fatalf("%T", err)
		}
		if err == nil && "salt/job/"+ret.JID+"/ret/"+ret.Minion != tag {
			t.Fatalf("%+v from %q", ret, tag)
		}
	})
}

func BenchmarkFrames(b *testing.B) {
	for _, f := range bustest.Framings() {
		one := bustest.Return(f, "20261130181033417609", "minion-1", "oduflow.start", strings.Repeat("x", 1400))
		stream := bytes.Repeat(one, 1000)
		for name, want := range map[string]func(string) bool{"decode": all, "skip": func(string) bool { return false }} {
			b.Run(f.String()+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(one)))
				n := 0
				for n < b.N {
					r := newFrameReader(bytes.NewReader(stream), want, DefaultMaxFrame, DefaultMaxBody)
					for n < b.N {
						ev, kind, err := r.next()
						if err != nil {
							break
						}
						if kind == frameEvent {
							if _, err := DecodeReturn(ev); err != nil {
								b.Fatal(err)
							}
						}
						n++
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}
