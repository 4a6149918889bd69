package eventbus

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Limits that hold where Config says 0.
const (
	DefaultQueue      = 1024
	DefaultQueueBytes = 16 << 20
	DefaultMaxFrame   = 64 << 20
	DefaultMaxBody    = 1 << 20
)

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

// Config is what a Client needs.
type Config struct {
	// Network is "unix" or "tcp", and Address the socket's path or host:port.
	Network, Address string
	// Want says by its tag whether an event is taken; the others are skipped
	// without being read into memory. It runs in the reader and has to be
	// quick. nil takes job returns and minions' starts.
	Want func(tag string) bool
	// Queue and QueueBytes bound what waits for the consumer. As much again
	// may be on its way to it.
	Queue, QueueBytes int
	// MaxFrame bounds a frame; beyond it the connection is closed. MaxBody
	// bounds the data of a wanted event; beyond it the event is skipped and
	// counted, without a Gap: answers of ours are far smaller.
	MaxFrame, MaxBody int64
	// Now is the clock of Gap.Since, and Jitter a number from 0 up to 1 that
	// spreads reconnects.
	Now    func() time.Time
	Jitter func() float64
	Logger hclog.Logger // nil is none
	// Dial replaces Network and Address.
	Dial func(ctx context.Context) (net.Conn, error)
}

// Client keeps one connection to the bus.
type Client struct {
	cfg     Config
	log     hclog.Logger
	queue   *queue
	signals chan Signal
	started atomic.Bool

	mu     sync.Mutex
	joined bool
	since  time.Time

	stats struct {
		events, skipped, badEvents, oversized, badFrames, cuts atomic.Uint64
		overflows, dropped, joins, dialErrors                  atomic.Uint64
	}
}

// New makes a Client that does nothing yet.
func New(cfg Config) *Client {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&cfg.Queue, DefaultQueue)
	def(&cfg.QueueBytes, DefaultQueueBytes)
	if cfg.MaxFrame <= 0 || cfg.MaxFrame > 1<<30 {
		cfg.MaxFrame = DefaultMaxFrame
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = DefaultMaxBody
	}
	if cfg.Want == nil {
		cfg.Want = isNews
	}
	log := cfg.Logger
	if log == nil {
		log = hclog.NewNullLogger()
	}
	if cfg.Dial == nil {
		network, address := cfg.Network, cfg.Address
		cfg.Dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		}
	}
	return &Client{cfg: cfg, log: log, queue: newQueue(cfg.Queue, cfg.QueueBytes), signals: make(chan Signal)}
}

// Events gives events and gaps in order. It is closed when Run has returned.
func (c *Client) Events() <-chan Signal { return c.signals }

// Joined says whether the bus is being listened to, and since when that, or
// its opposite, has been so.
func (c *Client) Joined() (joined bool, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.joined, c.since
}

func (c *Client) setJoined(joined bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.joined != joined || c.since.IsZero() {
		c.joined, c.since = joined, now
	}
}

// Stats gives the counters.
func (c *Client) Stats() Stats {
	s := &c.stats
	return Stats{
		Events: s.events.Load(), Skipped: s.skipped.Load(), BadEvents: s.badEvents.Load(),
		Oversized: s.oversized.Load(), BadFrames: s.badFrames.Load(), Cuts: s.cuts.Load(),
		Overflows: s.overflows.Load(), Dropped: s.dropped.Load(),
		Joins: s.joins.Load(), DialErrors: s.dialErrors.Load(),
	}
}

// Run joins the bus, and again whenever the connection ends, until ctx ends.
// It returns nil then, with the connection closed, nothing running any more
// and Events closed. problem.BadConfig is its only error. It runs once.
func (c *Client) Run(ctx context.Context) error {
	if c.cfg.Now == nil || c.cfg.Jitter == nil {
		return problem.New(problem.BadConfig, "the event bus client has no clock or no randomness")
	}
	if !c.started.CompareAndSwap(false, true) {
		return problem.New(problem.Internal, "the event bus client was started twice")
	}
	var pump sync.WaitGroup
	pump.Go(func() { c.pump(ctx) })
	defer pump.Wait()

	gap := Gap{Since: c.cfg.Now(), Reason: ReasonFirstJoin}
	c.setJoined(false, gap.Since)
	backoff := firstBackoff
	for ctx.Err() == nil {
		conn, err := c.cfg.Dial(ctx)
		if err != nil {
			c.stats.dialErrors.Add(1)
			c.log.Warn("event bus can't be joined", "address", c.cfg.Address, "error", err)
			backoff = c.wait(ctx, backoff)
			continue
		}
		var heard bool
		gap, heard = c.listen(ctx, conn, gap)
		if heard {
			backoff = firstBackoff
		}
		if ctx.Err() == nil {
			backoff = c.wait(ctx, backoff)
		}
	}
	return nil
}

// wait waits for between half and one and a half of the backoff, and gives the
// next one.
func (c *Client) wait(ctx context.Context, backoff time.Duration) time.Duration {
	t := time.NewTimer(time.Duration((0.5 + c.cfg.Jitter()) * float64(backoff)))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	return min(2*backoff, maxBackoff)
}

// listen reads one connection to its end. It gives the Gap that the next
// connection begins with, and whether anything was heard on this one.
func (c *Client) listen(ctx context.Context, conn net.Conn, gap Gap) (Gap, bool) {
	// The connection's end is what ends a read, also for ctx.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		stop()
		_ = conn.Close()
	}()
	// Joined before the Gap is out: whoever is woken by it finds us joined.
	last := c.cfg.Now()
	c.setJoined(true, last)
	c.stats.joins.Add(1)
	c.queue.putGap(gap)
	c.log.Info("event bus joined", "address", c.cfg.Address, "gap_since", gap.Since, "gap_reason", string(gap.Reason))

	f := newFrameReader(conn, c.cfg.Want, c.cfg.MaxFrame, c.cfg.MaxBody)
	heard := false
	for {
		ev, kind, err := f.next()
		if err != nil {
			c.setJoined(false, c.cfg.Now())
			reason := c.ended(err)
			if ctx.Err() == nil {
				c.log.Warn("event bus connection ended", "reason", string(reason), "error", err)
			}
			return Gap{Since: last, Reason: reason}, heard
		}
		heard = true
		c.count(ev, kind)
		// Up to here nothing is missing. While more is in the buffer, an
		// earlier time is still right, and spares a look at the clock.
		if f.r.Buffered() == 0 {
			last = c.cfg.Now()
		}
	}
}

func (c *Client) count(ev Event, kind frameKind) {
	switch kind {
	case frameEvent:
		kept, overflowed := c.queue.putEvent(ev, c.cfg.Now)
		if kept {
			c.stats.events.Add(1)
			return
		}
		c.stats.dropped.Add(1)
		if overflowed {
			c.stats.overflows.Add(1)
			c.log.Warn("event bus queue is full: events are being dropped")
		}
	case frameSkipped:
		c.stats.skipped.Add(1)
	case frameOversized:
		c.stats.oversized.Add(1)
	case frameBad:
		c.stats.badEvents.Add(1)
	}
}

// ended counts the end of a connection and says what it was.
func (c *Client) ended(err error) Reason {
	var fe *FrameError
	switch {
	case !errors.As(err, &fe):
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			c.stats.cuts.Add(1)
		}
		return ReasonClosed
	case fe.Reason == ReasonCut:
		c.stats.cuts.Add(1)
	default:
		c.stats.badFrames.Add(1)
	}
	return fe.Reason
}

// pump carries signals from the queue to the consumer.
func (c *Client) pump(ctx context.Context) {
	defer close(c.signals)
	var batch []Signal
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.queue.filled:
		}
		batch = c.queue.takeAll(batch)
		for i, s := range batch {
			select {
			case <-ctx.Done():
				return
			case c.signals <- s:
			}
			batch[i] = Signal{}
		}
	}
}
