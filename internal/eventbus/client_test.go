package eventbus_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/oduflow/oduflow-salt/internal/eventbus"
	"github.com/oduflow/oduflow-salt/internal/eventbus/bustest"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// clock is the real one: what is tested here runs on real sockets.
var clock = time.Now

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(s *bustest.Server) eventbus.Config {
	network, address := s.Address()
	return eventbus.Config{
		Network: network, Address: address, Now: clock,
		Jitter: func() float64 { return 0 },
	}
}

// run runs a client for the time of the test, and says how to end it.
func run(t *testing.T, cfg eventbus.Config) (*eventbus.Client, context.Context, func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	c := eventbus.New(cfg)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		for range c.Events() { // closed
		}
	}
	t.Cleanup(stop)
	return c, ctx, stop
}

func next(ctx context.Context, t *testing.T, c *eventbus.Client) eventbus.Signal {
	t.Helper()
	select {
	case s := <-c.Events():
		return s
	case <-ctx.Done():
		t.Fatalf("no signal: %v, %+v", ctx.Err(), c.Stats())
	}
	return eventbus.Signal{}
}

func wantGap(ctx context.Context, t *testing.T, c *eventbus.Client, reason eventbus.Reason) eventbus.Gap {
	t.Helper()
	s := next(ctx, t, c)
	if s.Gap == nil || s.Gap.Reason != reason {
		t.Fatalf("%+v %+v, want a gap: %s", s.Event, s.Gap, reason)
	}
	return *s.Gap
}

func wantEvent(ctx context.Context, t *testing.T, c *eventbus.Client, tag string) eventbus.Event {
	t.Helper()
	s := next(ctx, t, c)
	if s.Event == nil || s.Event.Tag != tag {
		t.Fatalf("%+v %+v, want %s", s.Event, s.Gap, tag)
	}
	return *s.Event
}

func tag(n int) string { return fmt.Sprintf("salt/job/%020d/ret/minion-1", n) }

func ret(f bustest.Framing, n int) []byte {
	return bustest.Return(f, fmt.Sprintf("%020d", n), "minion-1", "oduflow.start", "x")
}

// Each connection tells its framing anew; a gap comes with every join, the
// first one too.
func TestJoinsAndFramings(t *testing.T) {
	for _, start := range []func(testing.TB) *bustest.Server{bustest.New, bustest.NewTCP} {
		s := start(t)
		before := clock()
		c, ctx, _ := run(t, config(s))
		wantGap(ctx, t, c, eventbus.ReasonFirstJoin)
		for i, f := range []bustest.Framing{bustest.Bare, bustest.Prefixed, bustest.Bare} {
			s.WaitJoins(ctx, i+1)
			if joined, since := c.Joined(); !joined || since.Before(before) {
				t.Fatalf("joined %v since %v", joined, since)
			}
			s.Send(ret(f, i))
			ev := wantEvent(ctx, t, c, tag(i))
			got, err := eventbus.DecodeReturn(ev)
			if err != nil || got.Text != "x" || got.Minion != "minion-1" || got.Fun != "oduflow.start" {
				t.Fatalf("%+v, %v", got, err)
			}
			s.Drop()
			gap := wantGap(ctx, t, c, eventbus.ReasonClosed)
			if gap.Since.Before(before) || gap.Since.After(clock()) {
				t.Fatalf("since %v", gap.Since)
			}
		}
		if st := c.Stats(); st.Joins != 4 || st.Events != 3 || st.Cuts != 0 || st.BadFrames != 0 {
			t.Fatalf("%+v", st)
		}
	}
}

func TestHowAConnectionEnds(t *testing.T) {
	cases := []struct {
		name   string
		spoil  func(*bustest.Server, bustest.Framing)
		reason eventbus.Reason
	}{
		{"cut", func(s *bustest.Server, f bustest.Framing) { s.Cut(ret(f, 9), 40) }, eventbus.ReasonCut},
		{"garbled", func(s *bustest.Server, f bustest.Framing) { s.Send([]byte{0xc1, 0xc1, 0xc1, 0xc1}) }, eventbus.ReasonGarbled},
		{"restarted", func(s *bustest.Server, f bustest.Framing) { s.Down(); s.Up() }, eventbus.ReasonClosed},
	}
	for _, c := range cases {
		for _, f := range bustest.Framings() {
			t.Run(c.name+" "+f.String(), func(t *testing.T) {
				s := bustest.New(t)
				cl, ctx, _ := run(t, config(s))
				wantGap(ctx, t, cl, eventbus.ReasonFirstJoin)
				s.WaitJoins(ctx, 1)
				s.Send(ret(f, 1))
				wantEvent(ctx, t, cl, tag(1))
				c.spoil(s, f)
				wantGap(ctx, t, cl, c.reason)
				s.WaitJoins(ctx, 2)
				s.Send(ret(f, 2))
				wantEvent(ctx, t, cl, tag(2))
				st := cl.Stats()
				if (st.Cuts == 1) != (c.reason == eventbus.ReasonCut) || (st.BadFrames == 1) != (c.reason == eventbus.ReasonGarbled) {
					t.Fatalf("%+v", st)
				}
			})
		}
	}
}

func TestSlowBytes(t *testing.T) {
	for line, f := range bustest.Lines() {
		s := bustest.New(t)
		c, ctx, _ := run(t, config(s))
		wantGap(ctx, t, c, eventbus.ReasonFirstJoin)
		s.WaitJoins(ctx, 1)
		go s.SendSlowly(append(bustest.Recorded(t, line), ret(f, 1)...))
		for range 2 {
			if ev := next(ctx, t, c).Event; ev == nil || !eventbus.IsReturn(ev.Tag) {
				t.Fatalf("%s: %+v", line, ev)
			}
		}
		wantEvent(ctx, t, c, tag(1))
	}
}

// The reader never waits for its consumer, and an overflow is one gap where
// the events are missing, never lost.
func TestOverflow(t *testing.T) {
	const total, room = 5000, 10
	for _, f := range bustest.Framings() {
		s := bustest.New(t)
		cfg := config(s)
		cfg.Queue = room
		c, ctx, _ := run(t, cfg)
		wantGap(ctx, t, c, eventbus.ReasonFirstJoin)
		s.WaitJoins(ctx, 1)
		for n := range total {
			s.Send(ret(f, n))
		}
		// Nobody reads: all of them go through the reader all the same.
		waitFor(ctx, t, func() bool { st := c.Stats(); return st.Events+st.Dropped == total })
		st := c.Stats()
		if st.Dropped == 0 || st.Overflows == 0 {
			t.Fatalf("%+v", st)
		}
		// The gaps are where numbers are missing, and after the last one too.
		expected, events, gaps := 0, 0, 0
		for {
			sig := next(ctx, t, c)
			if sig.Gap != nil {
				if sig.Gap.Reason != eventbus.ReasonOverflow {
					t.Fatalf("%+v", sig.Gap)
				}
				gaps++
				if events == int(st.Events) {
					break // the last numbers are missing too
				}
				expected = -1
				continue
			}
			events++
			var n int
			if _, err := fmt.Sscanf(sig.Event.Tag, "salt/job/%d/ret", &n); err != nil {
				t.Fatal(err)
			}
			if expected >= 0 && n != expected {
				t.Fatalf("%d after %d without a gap", n, expected)
			}
			expected = n + 1
		}
		if gaps == 0 || events != int(st.Events) {
			t.Fatalf("%d gaps, %d events, %+v", gaps, events, st)
		}
		s.Send(ret(f, total))
		wantEvent(ctx, t, c, tag(total))
	}
}

func waitFor(ctx context.Context, t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		case <-tick.C:
		}
	}
}

// Bytes bound the queue as well, so that large events can't fill the memory.
func TestOverflowByBytes(t *testing.T) {
	s := bustest.New(t)
	cfg := config(s)
	cfg.QueueBytes = 100 << 10
	c, ctx, _ := run(t, cfg)
	s.WaitJoins(ctx, 1)
	large := bustest.Return(bustest.Bare, "1", "m", "f", string(make([]byte, 60<<10)))
	for range 20 {
		s.Send(large)
	}
	waitFor(ctx, t, func() bool { st := c.Stats(); return st.Events+st.Dropped == 20 })
	if st := c.Stats(); st.Dropped < 15 {
		t.Fatalf("%+v", st)
	}
}

func TestEndsWithItsContext(t *testing.T) {
	t.Run("while the bus is silent", func(t *testing.T) {
		s := bustest.New(t)
		c, ctx, stop := run(t, config(s))
		wantGap(ctx, t, c, eventbus.ReasonFirstJoin)
		s.WaitJoins(ctx, 1)
		stop()
		if joined, _ := c.Joined(); joined {
			t.Fatal("still joined")
		}
	})
	t.Run("within a frame, with nobody reading", func(t *testing.T) {
		s := bustest.New(t)
		_, ctx, stop := run(t, config(s))
		s.WaitJoins(ctx, 1)
		s.Send(ret(bustest.Bare, 1)[:30])
		stop()
	})
	t.Run("while nobody is there", func(t *testing.T) {
		s := bustest.New(t)
		s.Down()
		c, ctx, stop := run(t, config(s))
		waitFor(ctx, t, func() bool { return c.Stats().DialErrors > 0 })
		if joined, _ := c.Joined(); joined {
			t.Fatal("joined")
		}
		stop()
	})
}

func TestDeafThenJoined(t *testing.T) {
	s := bustest.New(t)
	s.Down()
	before := clock()
	c, ctx, _ := run(t, config(s))
	waitFor(ctx, t, func() bool { return c.Stats().DialErrors > 1 })
	s.Up()
	gap := wantGap(ctx, t, c, eventbus.ReasonFirstJoin)
	if gap.Since.Before(before) || c.Stats().Joins != 1 {
		t.Fatalf("%v, %+v", gap, c.Stats())
	}
}

// Reconnects wait longer each time, spread, and not for ever.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := clock()
		var at []time.Duration
		c := eventbus.New(eventbus.Config{
			Now: clock, Jitter: func() float64 { return 0.5 },
			Dial: func(context.Context) (net.Conn, error) {
				at = append(at, clock().Sub(start))
				if len(at) == 9 {
					cancel()
				}
				return nil, errors.New("no bus")
			},
		})
		if err := c.Run(ctx); err != nil {
			t.Fatal(err)
		}
		ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
		want := []time.Duration{0, ms(100), ms(300), ms(700), ms(1500), ms(3100), ms(6300), ms(11300), ms(16300)}
		if !slices.Equal(at, want) {
			t.Fatalf("%v, want %v", at, want)
		}
	})
}

// A connection on which something was heard starts the backoff anew.
func TestBackoffStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := clock()
		var at []time.Duration
		c := eventbus.New(eventbus.Config{
			Now: clock, Jitter: func() float64 { return 0.5 },
			Dial: func(context.Context) (net.Conn, error) {
				at = append(at, clock().Sub(start))
				switch len(at) {
				case 4:
					ours, theirs := net.Pipe()
					go func() {
						_, _ = theirs.Write(ret(bustest.Bare, 1))
						_ = theirs.Close()
					}()
					return ours, nil
				case 6:
					cancel()
				}
				return nil, errors.New("no bus")
			},
		})
		if err := c.Run(ctx); err != nil {
			t.Fatal(err)
		}
		ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
		if want := []time.Duration{0, ms(100), ms(300), ms(700), ms(800), ms(1000)}; !slices.Equal(at, want) {
			t.Fatalf("%v, want %v", at, want)
		}
	})
}

func TestRunRefuses(t *testing.T) {
	if err := eventbus.New(eventbus.Config{}).Run(t.Context()); problem.CodeOf(err) != problem.BadConfig {
		t.Fatalf("%v", err)
	}
	s := bustest.New(t)
	c, _, stop := run(t, config(s))
	stop()
	if err := c.Run(t.Context()); problem.CodeOf(err) != problem.Internal {
		t.Fatalf("%v", err)
	}
}

func TestStartTag(t *testing.T) {
	for tag, want := range map[string]string{
		"salt/minion/web-1/start": "web-1", "salt/minion/web.example.org/start": "web.example.org",
		"salt/minion/web-1/start/x": "", "salt/minion/web-1": "", "salt/minion//start": "", "salt/minion/a/b/start": "",
		"salt/minion/start": "", "minion_start": "", "salt/job/1/ret/start": "", "": "",
	} {
		if got, ok := eventbus.StartTag(tag); got != want || ok != (want != "") {
			t.Errorf("%s: %q %t", tag, got, ok)
		}
	}
}

// A client that isn't told what to want takes returns and minions' starts.
func TestWantsReturnsAndStarts(t *testing.T) {
	s := bustest.New(t)
	c, ctx, _ := run(t, config(s))
	wantGap(ctx, t, c, eventbus.ReasonFirstJoin)
	s.WaitJoins(ctx, 1)
	f := bustest.Framings()[0]
	for _, tag := range []string{"salt/auth", "salt/minion/web-1/start", "salt/minion/web-1/x", "salt/job/1/new"} {
		s.Send(bustest.Event(f, tag, map[string]any{"id": "web-1"}))
	}
	s.Send(ret(f, 1))
	wantEvent(ctx, t, c, "salt/minion/web-1/start")
	wantEvent(ctx, t, c, tag(1))
	if st := c.Stats(); st.Skipped != 3 || st.Events != 2 {
		t.Errorf("%+v", st)
	}
}

func TestDecodeReturnRefuses(t *testing.T) {
	body := func(tag string, data any) eventbus.Event {
		raw := bustest.Body("", data)[2:]
		return eventbus.Event{Tag: tag, Data: raw}
	}
	good := map[string]any{"jid": "1", "id": "m", "fun": "f", "return": "x", "retcode": -3, "success": true, "other": []any{1, map[string]any{}}}
	got, err := eventbus.DecodeReturn(body("salt/job/1/ret/m", good))
	if want := (eventbus.Return{JID: "1", Minion: "m", Fun: "f", Text: "x", Kind: eventbus.KindString, Retcode: -3, Success: true}); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, ev := range map[string]eventbus.Event{
		"three parts":      body("salt/job/1", good),
		"a fifth part":     body("salt/job/1/ret/m/x", good),
		"a new job":        body("salt/job/1/new", good),
		"another jid":      body("salt/job/2/ret/m", good),
		"another minion":   body("salt/job/1/ret/n", good),
		"no jid":           body("salt/job/1/ret/m", map[string]any{"id": "m"}),
		"jid as a number":  body("salt/job/1/ret/m", map[string]any{"jid": 1, "id": "m"}),
		"a list":           body("salt/job/1/ret/m", []any{}),
		"a list as fun":    body("salt/job/1/ret/m", map[string]any{"jid": "1", "id": "m", "fun": []any{"f"}}),
		"nothing":          {Tag: "salt/job/1/ret/m"},
		"twice":            {Tag: "salt/job/1/ret/m", Data: []byte("\x83\xa3jid\xa11\xa2id\xa1m\xa2id\xa1m")},
		"a byte more":      {Tag: "salt/job/1/ret/m", Data: []byte("\x82\xa3jid\xa11\xa2id\xa1m\xc0")},
		"a byte less":      {Tag: "salt/job/1/ret/m", Data: []byte("\x82\xa3jid\xa11\xa2id\xa1")},
		"a million values": {Tag: "salt/job/1/ret/m", Data: []byte("\xdf\xff\xff\xff\xff\xa3jid")},
	} {
		if ret, err := eventbus.DecodeReturn(ev); err == nil {
			t.Errorf("%s: %+v", name, ret)
		}
	}
	for kind, v := range map[eventbus.Kind]any{
		eventbus.KindNil: nil, eventbus.KindBool: true, eventbus.KindNumber: 3, eventbus.KindList: []any{},
		eventbus.KindMap: map[string]any{}, eventbus.KindOther: []byte("\xff"), eventbus.KindString: []byte("bin"),
	} {
		got, err := eventbus.DecodeReturn(body("salt/job/1/ret/m", map[string]any{"jid": "1", "id": "m", "return": v}))
		if err != nil || got.Kind != kind {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
	}
}
