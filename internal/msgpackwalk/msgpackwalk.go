// Package msgpackwalk reads msgpack that may come from anybody, by the headers
// of its values alone: it never recurses, and never allocates what a header
// announces. vmihailenco/msgpack does both, when it skips too: five bytes that
// announce an array of 2^32 values end the process ("out of memory", which
// can't be recovered), and 1 MiB of nested lists takes a gigabyte of stack.
// Whoever wants to decode hostile bytes with it calls Check first.
package msgpackwalk

import (
	"encoding/binary"
	"errors"
)

// Kind is the kind of a value. str and bin are one: which of both Salt sends
// depends on its version and on where a value came from.
type Kind uint8

// The kinds.
const (
	Nil Kind = iota + 1
	Bool
	Int
	Float
	Text // str or bin
	Array
	Map
	Ext
)

// Header is the head of one value. Size bytes follow it (Text, Ext), or Count
// values (Array, and Map with two for each pair).
type Header struct {
	Kind  Kind
	Size  int64
	Count int64
	Num   int64 // of Int and Bool
}

// IsMap says whether a map begins with b.
func IsMap(b byte) bool { return b>>4 == 0x8 || b == 0xde || b == 0xdf }

// lengths are those of the headers 0xc0 to 0xdf, after the msgpack specification.
var lengths = [32]int{
	1, 0, 1, 1, // nil, never used, false, true
	2, 3, 5, // bin 8, 16, 32
	3, 4, 6, // ext 8, 16, 32: length and type
	5, 9, // float 32, 64
	2, 3, 5, 9, // uint 8 to 64
	2, 3, 5, 9, // int 8 to 64
	2, 2, 2, 2, 2, // fixext 1 to 16: type
	2, 3, 5, // str 8, 16, 32
	3, 5, // array 16, 32
	3, 5, // map 16, 32
}

// HeaderLen gives the length of the header that begins with b, number
// included; not ok for the one byte that begins nothing.
func HeaderLen(b byte) (int, bool) {
	switch {
	case b < 0xc0 || b >= 0xe0:
		return 1, true
	case b == 0xc1:
		return 0, false
	}
	return lengths[b-0xc0], true
}

// Parse reads a header of HeaderLen(b[0]) bytes.
func Parse(b []byte) Header {
	c := b[0]
	switch {
	case c < 0x80:
		return Header{Kind: Int, Num: int64(c)}
	case c < 0x90:
		return Header{Kind: Map, Count: 2 * int64(c&0x0f)}
	case c < 0xa0:
		return Header{Kind: Array, Count: int64(c & 0x0f)}
	case c < 0xc0:
		return Header{Kind: Text, Size: int64(c & 0x1f)}
	case c >= 0xe0:
		return Header{Kind: Int, Num: int64(int8(c))} // #nosec G115 -- that is what it means
	}
	switch c {
	case 0xc2, 0xc3:
		return Header{Kind: Bool, Num: int64(c - 0xc2)}
	case 0xc4, 0xc5, 0xc6:
		return Header{Kind: Text, Size: unsigned(b[1:])}
	case 0xc7, 0xc8, 0xc9:
		return Header{Kind: Ext, Size: unsigned(b[1 : len(b)-1])}
	case 0xca, 0xcb:
		return Header{Kind: Float}
	case 0xcc, 0xcd, 0xce, 0xcf:
		return Header{Kind: Int, Num: unsigned(b[1:])}
	case 0xd0, 0xd1, 0xd2, 0xd3:
		return Header{Kind: Int, Num: signed(b[1:])}
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return Header{Kind: Ext, Size: 1 << (c - 0xd4)}
	case 0xd9, 0xda, 0xdb:
		return Header{Kind: Text, Size: unsigned(b[1:])}
	case 0xdc, 0xdd:
		return Header{Kind: Array, Count: unsigned(b[1:])}
	case 0xde, 0xdf:
		return Header{Kind: Map, Count: 2 * unsigned(b[1:])}
	}
	return Header{Kind: Nil}
}

// unsigned reads 1, 2, 4 or 8 bytes. An eight-byte number above the largest
// int64 becomes negative; only a retcode could be one, and none is.
func unsigned(b []byte) int64 {
	var w [8]byte
	copy(w[8-len(b):], b)
	return int64(binary.BigEndian.Uint64(w[:])) // #nosec G115 -- see above
}

func signed(b []byte) int64 {
	shift := uint(64 - 8*len(b)) // #nosec G115 -- 1 to 8 bytes
	return unsigned(b) << shift >> shift
}

// Walker reads values out of bytes. What is left is in Rest.
type Walker struct{ Rest []byte }

// Header takes the next header; not ok where no whole one is left.
func (w *Walker) Header() (Header, bool) {
	if len(w.Rest) == 0 {
		return Header{}, false
	}
	n, ok := HeaderLen(w.Rest[0])
	if !ok || n > len(w.Rest) {
		return Header{}, false
	}
	h := Parse(w.Rest[:n])
	w.Rest = w.Rest[n:]
	return h, true
}

// Take takes the next n bytes.
func (w *Walker) Take(n int64) ([]byte, bool) {
	if n < 0 || n > int64(len(w.Rest)) {
		return nil, false
	}
	b := w.Rest[:n]
	w.Rest = w.Rest[n:]
	return b, true
}

// Skip takes what follows h, to any depth.
func (w *Walker) Skip(h Header) bool {
	if _, ok := w.Take(h.Size); !ok {
		return false
	}
	for pending := h.Count; pending > 0; {
		// Each value has a byte at least.
		if pending > int64(len(w.Rest)) {
			return false
		}
		h, ok := w.Header()
		if !ok {
			return false
		}
		if _, ok := w.Take(h.Size); !ok {
			return false
		}
		pending += h.Count - 1
	}
	return true
}

// Check says whether b is exactly one whole value whose lists and maps nest at
// most maxDepth deep. Then each size that is announced in it is there, so that
// a decoder allocates no more than a small multiple of b, and recurses no
// deeper than that.
func Check(b []byte, maxDepth int) error {
	w := Walker{b}
	open := make([]int64, 0, min(maxDepth, 64)) // values still to come, by level
	for {
		h, ok := w.Header()
		if !ok {
			return ErrMalformed
		}
		if _, ok := w.Take(h.Size); !ok {
			return ErrMalformed
		}
		if h.Count > int64(len(w.Rest)) {
			return ErrMalformed
		}
		if h.Kind == Array || h.Kind == Map {
			if len(open) >= maxDepth {
				return ErrDepth
			}
			open = append(open, h.Count)
		}
		for len(open) > 0 && open[len(open)-1] == 0 {
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			break
		}
		open[len(open)-1]--
	}
	if len(w.Rest) != 0 {
		return ErrMalformed
	}
	return nil
}

// What Check finds.
var (
	ErrMalformed = errors.New("not one whole msgpack value")
	ErrDepth     = errors.New("msgpack nested too deep")
)
