// Command answer puts the state language behind a pipe for the differential
// run: frames of a 4-byte big-endian length and a source come in, and for each
// of them one line of JSON goes out, in order.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/state"
)

// answer is what one source came to.
type answer struct {
	OK        bool         `json:"ok"`
	Canonical string       `json:"canonical,omitempty"`
	Digest    string       `json:"digest,omitempty"`
	High      string       `json:"high,omitempty"`
	Expected  []string     `json:"expected,omitempty"`
	Code      problem.Code `json:"code,omitempty"`
	Line      int          `json:"line,omitempty"`
	Message   string       `json:"message,omitempty"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "answer:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	r := bufio.NewReaderSize(in, 1<<20)
	w := bufio.NewWriterSize(out, 1<<20)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return w.Flush()
			}
			return err
		}
		size := binary.BigEndian.Uint32(head[:])
		if size > 4*state.MaxSourceBytes {
			return fmt.Errorf("a frame of %d bytes", size)
		}
		source := make([]byte, size)
		if _, err := io.ReadFull(r, source); err != nil {
			return err
		}
		a, err := ask(source)
		if err != nil {
			return err
		}
		if err := e.Encode(a); err != nil {
			return err
		}
	}
}

func ask(source []byte) (answer, error) {
	d, errs := state.Parse(source)
	if d == nil {
		return answer{Code: errs[0].Code, Line: errs[0].Line, Message: errs[0].Message}, nil
	}
	again, err := state.Decode(d.Canonical())
	if err != nil {
		return answer{}, fmt.Errorf("the canonical form of %q doesn't decode: %w", source, err)
	}
	high, err := again.High()
	if err != nil {
		return answer{}, err
	}
	wire, err := high.MarshalJSON()
	if err != nil {
		return answer{}, err
	}
	a := answer{OK: true, Canonical: string(d.Canonical()), Digest: d.Digest(), High: string(wire)}
	for _, k := range again.Expected() {
		a.Expected = append(a.Expected, k.String())
	}
	return a, nil
}
