package msgpackwalk_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/oduflow/oduflow-salt/internal/msgpackwalk"
)

// Every header form, against what the library writes.
func TestHeaders(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 70000)
	values := []any{
		nil, true, false, 0, 127, 128, 255, 256, 65535, 65536, math.MaxUint32, int64(math.MaxInt64),
		-1, -32, -33, -128, -129, -32768, -32769, math.MinInt32, int64(math.MinInt64),
		float32(1.5), 2.5, "", "a", string(long[:31]), string(long[:32]), string(long[:255]), string(long[:256]), string(long),
		[]byte{}, long[:255], long[:256], long,
		[]int{}, make([]int, 15), make([]int, 16), make([]int, 70000),
		map[string]any{}, map[string]any{"a": []any{map[string]any{"b": nil}}},
	}
	for _, v := range values {
		raw, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := msgpackwalk.Check(raw, 8); err != nil {
			t.Errorf("%.40v: %v", v, err)
		}
		w := msgpackwalk.Walker{Rest: raw}
		h, ok := w.Header()
		if !ok {
			t.Fatalf("%.40v: no header", v)
		}
		switch v := v.(type) {
		case int:
			if h.Kind != msgpackwalk.Int || h.Num != int64(v) {
				t.Errorf("%d: %+v", v, h)
			}
		case int64:
			if h.Kind != msgpackwalk.Int || h.Num != v {
				t.Errorf("%d: %+v", v, h)
			}
		case bool:
			if h.Kind != msgpackwalk.Bool || (h.Num == 1) != v {
				t.Errorf("%t: %+v", v, h)
			}
		case string:
			if h.Kind != msgpackwalk.Text || h.Size != int64(len(v)) {
				t.Errorf("string: %+v", h)
			}
		case []byte:
			if h.Kind != msgpackwalk.Text || h.Size != int64(len(v)) {
				t.Errorf("bin: %+v", h)
			}
		case []int:
			if h.Kind != msgpackwalk.Array || h.Count != int64(len(v)) {
				t.Errorf("list: %+v", h)
			}
		}
		if !w.Skip(h) || len(w.Rest) != 0 {
			t.Errorf("%.40v: %d bytes left", v, len(w.Rest))
		}
		for _, n := range []int{1, len(raw) - 1} {
			if n > 0 && n < len(raw) && msgpackwalk.Check(raw[:n], 8) == nil {
				t.Errorf("%.40v: %d bytes of %d are whole", v, n, len(raw))
			}
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	cases := map[string]struct {
		raw  []byte
		want error
	}{
		"nothing":                     {nil, msgpackwalk.ErrMalformed},
		"the byte that is never used": {[]byte{0xc1}, msgpackwalk.ErrMalformed},
		"two values":                  {[]byte{0xc0, 0xc0}, msgpackwalk.ErrMalformed},
		"a list of 2^32-1":            {[]byte{0xdd, 0xff, 0xff, 0xff, 0xff}, msgpackwalk.ErrMalformed},
		"a map of 2^32-1":             {[]byte{0xdf, 0xff, 0xff, 0xff, 0xff, 0xc0}, msgpackwalk.ErrMalformed},
		"a text of 2^32-1":            {[]byte{0xdb, 0xff, 0xff, 0xff, 0xff}, msgpackwalk.ErrMalformed},
		"half a map":                  {[]byte{0x81, 0xc0}, msgpackwalk.ErrMalformed},
		"a million levels":            {bytes.Repeat([]byte{0x91}, 1e6), msgpackwalk.ErrDepth},
		"one level too many":          {append(bytes.Repeat([]byte{0x91}, 9), 0xc0), msgpackwalk.ErrDepth},
	}
	for name, c := range cases {
		if err := msgpackwalk.Check(c.raw, 8); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := msgpackwalk.Check(append(bytes.Repeat([]byte{0x91}, 8), 0xc0), 8); err != nil {
		t.Errorf("eight levels: %v", err)
	}
}

// What Check lets through, the library decodes or refuses, and lives.
func FuzzCheck(f *testing.F) {
	for _, v := range []any{nil, map[string]any{"a": []any{1, "b", []byte("c"), 1.5, true}}, []any{}} {
		raw, _ := msgpack.Marshal(v)
		f.Add(raw)
	}
	f.Add([]byte("\x82\xa400\xdd\xdd\xdd\xdd0\x9100"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := msgpackwalk.Check(raw, 16)
		w := msgpackwalk.Walker{Rest: raw}
		h, ok := w.Header()
		whole := ok && w.Skip(h) && len(w.Rest) == 0
		if err == nil && !whole {
			t.Fatal("Check took what isn't whole")
		}
		if err != nil && whole && !errors.Is(err, msgpackwalk.ErrDepth) {
			t.Fatalf("Check refused what is whole: %v", err)
		}
		if err == nil {
			_, _ = msgpack.NewDecoder(bytes.NewReader(raw)).DecodeInterface()
		}
	})
}
