package miniontest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion"
)

// Shim plays salt/_modules/oduflow.py. What is nil behaves as the real one on
// a minion where every state succeeds.
type Shim struct {
	Facts   *minion.Facts                                // instead of the kit's
	Between func() minion.Facts                          // the facts asked for during a start
	Lease   func(request string, wait time.Duration) any // what is said; the lease itself is not touched
	Run     func(high []byte) any                        // nil: an empty map of results; an error ends the shim
	Ran     func()                                       // called once as the high data arrives
}

// Said is how a conversation ended.
type Said struct {
	Text string // "" where the executor ended without a word
	Ran  bool   // the executor handed over high data
	Err  error  // how the executor's process ended
	Log  string
}

// ErrLeave makes a shim end in the middle of a run, as a killed job process.
var ErrLeave = errors.New("the job process is gone")

// TryLease takes the lease for a request, as the shim does. The file is nil if
// it stays busy.
func (k *Kit) TryLease(request string, wait time.Duration) *os.File {
	k.tb.Helper()
	f, err := k.tryLease(request, wait)
	k.must(err)
	return f
}

func (k *Kit) tryLease(request string, wait time.Duration) (*os.File, error) {
	f, err := os.OpenFile(k.Ledger(ledger.LeaseFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(wait) //nolint:forbidigo // a real lock's time
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if time.Now().After(until) { //nolint:forbidigo // a real lock's time
			_ = f.Close()
			return nil, nil
		}
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // polling a real lock
	}
	if _, err = f.WriteAt(fmt.Appendf(nil, "%-256s", fmt.Sprintf(`{"version":1,"request":%q}`, request)), 0); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Send drives one real minion-executor through one conversation.
func (k *Kit) Send(kind message.Kind, text string, s Shim) Said {
	k.tb.Helper()
	said, err := k.TrySend(kind, text, s)
	k.must(err)
	return said
}

// TrySend is Send for goroutines other than the test's own.
func (k *Kit) TrySend(kind message.Kind, text string, s Shim) (Said, error) {
	ctx, cancel := deadline()
	defer cancel()
	run := append(slices.Clone(k.Wrap), filepath.Join(k.Facts.LibDir, "minion-executor"), string(kind))
	cmd := exec.CommandContext(ctx, run[0], run[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var log bytes.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		return Said{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Said{}, err
	}
	if err := cmd.Start(); err != nil {
		return Said{}, err
	}
	facts := k.Facts
	if s.Facts != nil {
		facts = *s.Facts
	}
	c := &conversation{kit: k, shim: s, facts: facts, in: json.NewEncoder(in), out: bufio.NewReaderSize(out, 1<<20)}
	said, err := c.hold(text)
	_ = in.Close()
	said.Err = cmd.Wait()
	said.Log = log.String()
	if c.lease != nil {
		_ = c.lease.Close()
	}
	return said, err
}

type conversation struct {
	kit   *Kit
	shim  Shim
	facts minion.Facts
	lease *os.File
	in    *json.Encoder
	out   *bufio.Reader
}

func (c *conversation) hold(text string) (Said, error) {
	var said Said
	// A write may fail: the executor is gone, which the read will tell.
	_ = c.in.Encode(minion.Opening{Version: minion.TalkVersion, Message: text, Facts: c.facts})
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			return said, nil //nolint:nilerr // an executor that ended without a word
		}
		var asked struct {
			Do      string          `json:"do"`
			Text    string          `json:"text"`
			Request string          `json:"request"`
			WaitS   float64         `json:"wait_s"`
			High    json.RawMessage `json:"high"`
		}
		if err := json.Unmarshal(line, &asked); err != nil {
			return said, err
		}
		switch asked.Do {
		case "return":
			said.Text = asked.Text
			return said, nil
		case "facts":
			facts := c.facts
			if c.shim.Between != nil {
				facts = c.shim.Between()
			}
			_ = c.in.Encode(map[string]any{"facts": facts})
		case "lease":
			lease := c.takeLease(asked.Request, time.Duration(asked.WaitS*float64(time.Second)))
			if failed, ok := lease.(error); ok {
				said.Text = "oduflow: unavailable executor_failed"
				return said, c.unless(failed, syscall.EROFS, syscall.ENOSPC)
			}
			_ = c.in.Encode(lease)
		case "run":
			said.Ran = true
			if c.shim.Ran != nil {
				c.shim.Ran()
			}
			answer := any(map[string]any{"kind": "map", "results": [][2]string{}})
			if c.shim.Run != nil {
				answer = c.shim.Run(asked.High)
			}
			if _, leave := answer.(error); leave {
				return said, nil
			}
			_ = c.in.Encode(answer)
		default:
			return said, fmt.Errorf("the executor said %q", asked.Do)
		}
	}
}

func (c *conversation) takeLease(request string, wait time.Duration) any {
	if c.shim.Lease != nil {
		return c.shim.Lease(request, wait)
	}
	var err error
	switch c.lease, err = c.kit.tryLease(request, wait); {
	case err != nil:
		return err
	case c.lease == nil:
		return map[string]any{"lease": "busy"}
	default:
		return map[string]any{"lease": "held"}
	}
}

// unless gives an error that isn't one of those.
func (c *conversation) unless(err error, allowed ...error) error {
	for _, a := range allowed {
		if errors.Is(err, a) {
			return nil
		}
	}
	return err
}

// Results answers for every state of a document with one result.
func Results(canonical []byte, result string) any {
	return map[string]any{"kind": "map", "results": ResultPairs(canonical, result)}
}
