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

// job is one publication as the bus told it, and ret one return.
type (
	job struct{ jid, minion, fun, user, text string }
	ret struct{ jid, minion, fun, text string }
)

// bus stands between the master's event bus and masterd. It takes the master's
// events apart and frames them anew, so it can lose, repeat, invent and break
// any of them. It also keeps a record of every job and every return.
type bus struct {
	framing bustest.Framing
	ln      net.Listener
	client  *eventbus.Client
	done    sync.WaitGroup
	stop    context.CancelFunc

	mu      sync.Mutex
	changed chan struct{} // closed and made anew whenever one of the below has changed
	conns   []net.Conn
	joins   int // how often masterd has joined
	gaps    int // how often the master's own bus had a gap
	mood    mood
	cutAt   string // the next return of this minion's is cut half way
	jobs    []job
	rets    []ret
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
		framing: bustest.Lines()[line], ln: ln, stop: cancel, changed: make(chan struct{}),
		client: eventbus.New(eventbus.Config{
			Network: "unix", Address: from, Want: func(string) bool { return true },
			Queue: 1 << 16, QueueBytes: 64 << 20, Now: time.Now, Jitter: rand.Float64,
		}),
	}
	b.done.Go(func() { _ = b.client.Run(ctx) })
	b.done.Go(func() { b.pump(ctx) })
	b.done.Go(b.accept)
	return b, nil
}

func (b *bus) close() {
	b.stop()
	_ = b.ln.Close()
	b.mu.Lock()
	b.drop()
	b.mu.Unlock()
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
		b.joins++
		b.tell()
		b.mu.Unlock()
	}
}

// drop ends masterd's connection, and tell says that something has changed.
// Both run with mu held.
func (b *bus) drop() {
	for _, c := range b.conns {
		_ = c.Close()
	}
	b.conns = nil
}

func (b *bus) tell() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// await returns once true, which is asked with mu held whenever something has
// changed.
func (b *bus) await(ctx context.Context, true func() bool) error {
	for {
		b.mu.Lock()
		ok, changed := true(), b.changed
		b.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rejoined does what costs masterd its connection, and returns once it has
// joined again. What began before could lose an answer that nobody meant to.
func (b *bus) rejoined(ctx context.Context, lose func()) error {
	b.mu.Lock()
	n := b.joins
	b.mu.Unlock()
	lose()
	return b.await(ctx, func() bool { return b.joins > n })
}

// cutOff ends masterd's connection.
func (b *bus) cutOff() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop()
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

func (b *bus) pump(ctx context.Context) {
	for s := range b.client.Events() {
		b.mu.Lock()
		switch {
		case s.Gap != nil && s.Gap.Reason != eventbus.ReasonFirstJoin:
			b.gaps++
			b.drop() // the master's end is masterd's end
		case s.Event != nil:
			// Whoever is told of an event finds it passed on, or not.
			b.note(*s.Event)
			b.pass(ctx, *s.Event)
		}
		b.tell()
		b.mu.Unlock()
	}
}

func (b *bus) note(e eventbus.Event) {
	if r, err := eventbus.DecodeReturn(e); err == nil {
		b.rets = append(b.rets, ret{r.JID, r.Minion, r.Fun, r.Text})
		return
	}
	if len(e.Tag) != len("salt/job/")+20+len("/new") || e.Tag[len(e.Tag)-4:] != "/new" {
		return
	}
	var published struct {
		JID     string   `msgpack:"jid"`
		Fun     any      `msgpack:"fun"`
		User    string   `msgpack:"user"`
		Arg     []any    `msgpack:"arg"`
		Minions []string `msgpack:"minions"`
	}
	if err := msgpack.Unmarshal(e.Data, &published); err != nil {
		return
	}
	fun, _ := published.Fun.(string)
	text := ""
	if len(published.Arg) > 0 {
		text, _ = published.Arg[0].(string)
	}
	for _, m := range published.Minions {
		b.jobs = append(b.jobs, job{published.JID, m, fun, published.User, text})
	}
}

func (b *bus) pass(ctx context.Context, e eventbus.Event) {
	frame := bustest.Frame(b.framing, append([]byte(e.Tag+"\n\n"), e.Data...), false)
	if _, minion, ok := eventbus.ReturnTag(e.Tag); ok && minion == b.cutAt {
		b.cutAt = ""
		b.write(frame[:len(frame)/2])
		b.drop()
		return
	}
	switch b.mood {
	case deaf:
	case slow:
		pace := time.NewTicker(2 * time.Millisecond)
		defer pace.Stop()
		for part := range slices.Chunk(frame, 16) {
			b.write(part)
			select {
			case <-pace.C:
			case <-ctx.Done():
				return
			}
		}
	case doubled:
		b.write(frame)
		b.write(frame)
	case well:
		b.write(frame)
	}
}

// starts gives the JIDs of all starts that masterd had published for a minion.
func (b *bus) starts(minion string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent(minion)
}

// sent is starts, with mu held.
func (b *bus) sent(minion string) (jids []string) {
	for _, j := range b.published(minion, start) {
		if j.user == "oduflow" {
			jids = append(jids, j.jid)
		}
	}
	return jids
}

// returns gives what a minion returned for a function.
func (b *bus) returns(minion, fun string) []ret {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.returned(minion, fun)
}

// asked gives the jobs with a function that were published for a minion.
func (b *bus) asked(minion, fun string) []job {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.published(minion, fun)
}

func (b *bus) gapCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gaps
}

// published and returned run with mu held.
func (b *bus) published(minion, fun string) []job {
	return picked(b.jobs, func(j job) bool { return j.minion == minion && j.fun == fun })
}

func (b *bus) returned(minion, fun string) []ret {
	return picked(b.rets, func(r ret) bool { return r.minion == minion && r.fun == fun })
}

func picked[T any](all []T, wanted func(T) bool) (out []T) {
	for _, x := range all {
		if wanted(x) {
			out = append(out, x)
		}
	}
	return out
}
