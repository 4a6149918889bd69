//go:build salt

package minionside

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
)

// publisher publishes as an operator, and as masterd would, without the second
// that each `salt` takes to start.
type publisher struct {
	m       *saltMinion
	in      io.WriteCloser
	mu      sync.Mutex
	number  int
	waiting map[int]chan json.RawMessage
}

// newPublisher starts publisher.py. Salt waits wait seconds for a return, and
// longer while the minion says that it works on it.
func (m *saltMinion) newPublisher(wait string) *publisher {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(m.venv, "bin/python"), "publisher.py", filepath.Join(m.conf, "master"), m.ID, wait)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	must(m.t, err)
	out, err := cmd.StdoutPipe()
	must(m.t, err)
	must(m.t, cmd.Start())
	m.t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	p := &publisher{m: m, in: in, waiting: map[int]chan json.RawMessage{}}
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var said []json.RawMessage
			var number int
			if json.Unmarshal(lines.Bytes(), &said) != nil || len(said) != 2 || json.Unmarshal(said[0], &number) != nil {
				continue
			}
			p.mu.Lock()
			p.waiting[number] <- said[1]
			p.mu.Unlock()
		}
	}()
	return p
}

// publish sends one job, and gives where its return will be.
func (p *publisher) publish(fun string, arg ...string) <-chan json.RawMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number++
	returned := make(chan json.RawMessage, 1)
	p.waiting[p.number] = returned
	line := []any{p.number, fun}
	for _, a := range arg {
		line = append(line, a)
	}
	raw, err := json.Marshal(line)
	must(p.m.t, err)
	_, err = p.in.Write(append(raw, '\n'))
	must(p.m.t, err)
	return returned
}

// send publishes a question.
func (p *publisher) send(q miniontest.Question) <-chan json.RawMessage {
	return p.publish("oduflow."+string(q.Message.Kind), q.Text)
}

// read gives the text that came back, "" where none did.
func (p *publisher) read(returned <-chan json.RawMessage) string {
	p.m.t.Helper()
	select {
	case raw := <-returned:
		var text string
		_ = json.Unmarshal(raw, &text)
		return text
	case <-time.After(3 * time.Minute):
		p.m.t.Fatal("the publisher says nothing")
	}
	return ""
}

// ask publishes a question and reads its answer.
func (p *publisher) ask(a miniontest.Ask) message.Answer {
	p.m.t.Helper()
	q := p.m.Seal(a)
	return p.m.Read(q, p.read(p.send(q)))
}

// prepared gives a prepared request.
func (p *publisher) prepared(source string) (request, ticket string, canonical []byte) {
	p.m.t.Helper()
	canonical, digest := p.m.Document(source)
	request = miniontest.NewUUID()
	a := p.ask(miniontest.Ask{Kind: message.Prepare, Request: request, Digest: digest})
	if a.Result != message.Prepared {
		p.m.t.Fatalf("not prepared: %+v", a)
	}
	return request, a.Ticket, canonical
}

func (p *publisher) evidence(request string) message.Answer {
	p.m.t.Helper()
	return p.ask(miniontest.Ask{Kind: message.Evidence, Request: request, Body: message.Body{Fence: true}})
}
