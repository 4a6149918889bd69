//go:build salt

package faults

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/oduflow/oduflow-salt/internal/eventbus"
	"github.com/oduflow/oduflow-salt/internal/eventbus/bustest"
)

// mood is how the bus treats the events that it carries to masterd.
type mood int

const (
	well    mood = iota
	deaf         // nothing comes
	slow         // a few bytes at a time
	doubled      // everything comes twice
)

// ret is one return as the bus told it.
type ret struct{ jid, minion, fun, text string }

// bus stands between the master's event bus and masterd. It takes the master's
// events apart and frames them anew, so it can lose, repeat, invent and break
// any of them. It also keeps a record of every job and every return.
type bus struct {
	framing bustest.Framing
	ln      net.Listener
	client  *eventbus.Client
	done    sync.WaitGroup
	stop    context.CancelFunc

	mu    sync.Mutex
	conns []net.Conn
	mood  mood
	cutAt string              // the next return of this minion's is cut half way
	news  map[string][]string // by minion: the JID of each salt/job/JID/new of an oduflow.start
	rets  []ret
}

// newBus joins the master's bus at from and is one at path.
func newBus(from, path, line string, uid, gid int) (*bus, error) {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, err
	}
	_ = os.Chown(path, uid, gid)
	ctx, cancel := context.WithCancel(context.Background())
	b := &bus{
		framing: bustest.Lines()[line], ln: ln, stop: cancel, news: map[string][]string{},
		client: eventbus.New(eventbus.Config{
			Network: "unix", Address: from, Want: func(string) bool { return true },
			Queue: 1 << 16, QueueBytes: 64 << 20, Now: time.Now, Jitter: rand.Float64,
		}),
	}
	b.done.Go(func() { _ = b.client.Run(ctx) })
	b.done.Go(b.pump)
	b.done.Go(b.accept)
	return b, nil
}

func (b *bus) close() {
	b.stop()
	_ = b.ln.Close()
	b.drop()
	b.done.Wait()
}

func (b *bus) accept() {
	for {
		conn, err := b.ln.Accept()
		if err != nil {
			return
		}
		if joined, _ := b.client.Joined(); !joined {
			_ = conn.Close() // there is no master behind us
			continue
		}
		b.mu.Lock()
		b.conns = append(b.conns, conn)
		b.mu.Unlock()
	}
}

// drop ends masterd's connection.
func (b *bus) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropLocked()
}

func (b *bus) dropLocked() {
	for _, c := range b.conns {
		_ = c.Close()
	}
	b.conns = nil
}

func (b *bus) set(m mood) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mood = m
}

// cut breaks the next return of a minion's in the middle.
func (b *bus) cut(minion string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cutAt = minion
}

// say invents a return, or any other bytes, between two events.
func (b *bus) say(raw []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.write(raw)
}

func (b *bus) write(raw []byte) {
	for _, c := range b.conns {
		_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
		_, _ = c.Write(raw)
	}
}

func (b *bus) pump() {
	for s := range b.client.Events() {
		switch {
		case s.Gap != nil && s.Gap.Reason != eventbus.ReasonFirstJoin:
			b.drop() // the master's end is masterd's end
		case s.Event != nil:
			b.note(*s.Event)
			b.pass(*s.Event)
		}
	}
}

func (b *bus) note(e eventbus.Event) {
	if r, err := eventbus.DecodeReturn(e); err == nil {
		b.mu.Lock()
		b.rets = append(b.rets, ret{r.JID, r.Minion, r.Fun, r.Text})
		b.mu.Unlock()
		return
	}
	if len(e.Tag) != len("salt/job/")+20+len("/new") || e.Tag[len(e.Tag)-4:] != "/new" {
		return
	}
	var job struct {
		JID     string   `msgpack:"jid"`
		Fun     any      `msgpack:"fun"`
		Minions []string `msgpack:"minions"`
	}
	if err := msgpack.Unmarshal(e.Data, &job); err != nil || job.Fun != "oduflow.start" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range job.Minions {
		b.news[m] = append(b.news[m], job.JID)
	}
}

func (b *bus) pass(e eventbus.Event) {
	frame := bustest.Frame(b.framing, append([]byte(e.Tag+"\n\n"), e.Data...), false)
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, minion, ok := eventbus.ReturnTag(e.Tag); ok && minion == b.cutAt {
		b.cutAt = ""
		b.write(frame[:len(frame)/2])
		b.dropLocked()
		return
	}
	switch b.mood {
	case deaf:
	case slow:
		for part := range slices.Chunk(frame, 16) {
			b.write(part)
			time.Sleep(2 * time.Millisecond)
		}
	case doubled:
		b.write(frame)
		b.write(frame)
	case well:
		b.write(frame)
	}
}

// starts gives the JIDs of all starts that were published for a minion.
func (b *bus) starts(minion string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.news[minion])
}

// returns gives what a minion returned under a JID, or for a function.
func (b *bus) returns(minion, fun string) []ret {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []ret
	for _, r := range b.rets {
		if r.minion == minion && r.fun == fun {
			out = append(out, r)
		}
	}
	return out
}
