//go:build salt

package faults

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/oduflow/oduflow-salt/internal/eventbus/bustest"
	"github.com/oduflow/oduflow-salt/internal/message"
)

// What masterd has Salt run.
const (
	prepare  = "oduflow.prepare"
	start    = "oduflow.start"
	evidence = "oduflow.evidence"
)

// packed is a short text as msgpack has it: its length is part of it, so that
// minion-1 isn't found in minion-12.
func packed(text string) string { return string([]byte{0xa0 | byte(len(text))}) + text }

// channelFaults are what a network may do between masterd and port 4506.
func channelFaults() []fault {
	relayed := func(do deed, fun, what string, want ending) fault {
		return fault{
			step: "4506, " + fun, what: what, want: want, slow: want.codes[0] == "never_started",
			strike: func(c *trial) {
				p := channel.plan(do, fun, packed(name(c.i)))
				c.call()
				<-p.hit
				if want.starts == 0 {
					c.await()
				}
				c.goesOut()
			},
		}
	}
	faults := []fault{
		relayed(dropReply, start, "reply dropped", succeeds()),
		relayed(delayReply, start, "reply delayed 60 s", succeeds()),
		relayed(cutReply, start, "reply cut half way", succeeds()),
		relayed(dropRequest, start, "request dropped", neverSent()),
		relayed(cutRequest, start, "request cut half way", neverSent()),
		relayed(repeatRequest, start, "request repeated", ending{"succeeded", []string{""}, 1, 2}),
		relayed(dropReply, prepare, "reply dropped", succeeds()),
		relayed(cutReply, prepare, "reply cut half way", succeeds()),
		relayed(dropRequest, prepare, "request dropped", refusedWith("executor_silent")),
		relayed(repeatRequest, prepare, "request repeated", succeeds()),
		relayed(dropReply, "key.print", "reply dropped", refusedWith("executor_silent")),
		relayed(cutReply, "key.print", "reply cut half way", refusedWith("executor_silent")),
		{
			step: "4506, " + start, what: "request held back past the fence", slow: true,
			want: ending{"failed", []string{"never_started"}, 0, 1},
			strike: func(c *trial) {
				answers := len(events.returns(name(c.i), start))
				p := channel.plan(holdRequest, start, packed(name(c.i)))
				c.call()
				<-p.hit
				c.after = func(c *trial) {
					c.await()
					close(p.release) // now it goes out, to a ledger that has fenced it
					c.returned(start, 60*time.Second, answers)
					c.delivered() // and the answer changes nothing
				}
			},
		},
	}
	return sampled(faults, "4506, oduflow.start reply dropped", "4506, oduflow.start reply cut half way",
		"4506, oduflow.start reply delayed 60 s", "4506, oduflow.start request repeated",
		"4506, oduflow.start request held back past the fence", "4506, oduflow.prepare request dropped")
}

// busFaults are what may happen to the answers' way back.
func busFaults() []fault {
	moody := func(what string, m mood, want ending) fault {
		return fault{
			step: "event bus", what: what, alone: true, sample: true, want: want,
			strike: func(c *trial) {
				events.set(m)
				defer c.loses(func() { events.set(well); events.cutOff() })
				c.call()
				c.await()
			},
		}
	}
	heldWhile := func(what string, strike func(c *trial)) fault {
		return fault{
			step: "event bus", what: what, alone: true, sample: true, want: succeeds(),
			strike: func(c *trial) {
				c.holds()
				c.call()
				c.running()
				c.awaitStatus("running")
				strike(c)
				c.await() // the next one's fault mustn't meet the look for this one's answer
			},
		}
	}
	returned := func(c *trial) {
		n := len(events.returns(name(c.i), start))
		c.letGo()
		c.returned(start, 60*time.Second, n)
	}
	deafBefore := moody("deaf before prepare", deaf, refusedWith("executor_silent"))
	deafBefore.sample = false
	return []fault{
		moody("slow", slow, succeeds()), moody("everything twice", doubled, succeeds()), deafBefore,
		heldWhile("deaf while the answer comes, then cut", func(c *trial) {
			events.set(deaf)
			returned(c)
			c.loses(func() { events.set(well); events.cutOff() })
		}),
		heldWhile("the answer cut half way", func(c *trial) {
			c.loses(func() { events.cut(name(c.i)); c.letGo() })
		}),
		heldWhile("garbled, and the answer lost", func(c *trial) {
			events.set(deaf)
			returned(c)
			c.loses(func() { events.set(well); events.say([]byte("\xc1\xff\x00\x00garbage")) })
		}),
		heldWhile("forged, foreign and different returns", func(c *trial) {
			starts := events.starts(name(c.i))
			jid := starts[len(starts)-1]
			forged := message.Answer{
				Protocol: message.Protocol, Kind: message.Start, Request: c.start.Request, Target: name(c.i),
				Nonce: strings.Repeat("ab", 16), Result: message.Fenced, Code: "never_started",
			}
			lie, _ := json.Marshal(forged)
			texts := []string{
				"odf1." + base64.RawURLEncoding.EncodeToString(lie) + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 32)),
				"oduflow: unavailable executor_failed", "'oduflow.start' is not available.", "", "odf1.",
			}
			for _, fun := range []string{prepare, evidence, start} {
				for _, r := range events.returns(name(c.i), fun) { // answers to other questions, each with a MAC of its own
					texts = append(texts, r.text, strings.Replace(r.text, "A", "B", 1))
				}
			}
			asked := len(events.returns(name(c.i), evidence))
			for _, text := range texts {
				events.say(bustest.Return(events.framing, jid, name(c.i), start, text))
			}
			events.say(bustest.Return(events.framing, jid, name(c.i), start, map[string]any{}))
			// They are a reason to ask, and that is all.
			c.returned(evidence, 60*time.Second, asked)
			c.delivered()
			if a := c.now(); a.Status != "running" {
				c.Errorf("after forged returns it is %s %q", a.Status, a.Code)
			}
			returned(c)
			own := events.returns(name(c.i), start)
			c.await()
			events.say(bustest.Return(events.framing, jid, name(c.i), start, own[len(own)-1].text)) // late, and again
			events.say(bustest.Return(events.framing, jid, name(c.i), start, texts[0]))
			c.delivered()
		}),
	}
}
