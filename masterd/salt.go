package main

import (
	"context"
	"fmt"
	"io"

	"github.com/oduflow/oduflow-salt/internal/dispatch"
	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/saltreq"
)

// saltChannel fits Salt's request channel to what package exchange asks for.
type saltChannel struct{ client *saltreq.Client }

func (s saltChannel) Publish(ctx context.Context, kind message.Kind, target, text, jid string) (exchange.Sending, error) {
	function, ok := map[message.Kind]saltreq.Function{
		message.Prepare: saltreq.Prepare, message.Start: saltreq.Start, message.Evidence: saltreq.Evidence,
		message.Settle: saltreq.Settle, message.Update: saltreq.Update,
	}[kind]
	if !ok {
		return exchange.SendingNotTried, problem.New(problem.Internal, "no function for message kind %q", kind)
	}
	done, err := s.client.Publish(ctx, saltreq.Publish{Fun: function, Target: target, Arg: text, JID: jid})
	switch done.Outcome {
	case saltreq.Sent:
		return exchange.SendingSent, err
	case saltreq.NotSent:
		return exchange.SendingNothing, err
	case saltreq.NotAttempted:
		return exchange.SendingNotTried, err
	case saltreq.Unknown:
		return exchange.SendingUnknown, err
	}
	return exchange.SendingUnknown, err
}

func (s saltChannel) Key(ctx context.Context, target string) (string, error) {
	return s.client.KeyPrint(ctx, target)
}

// saltExchange fits package exchange to what package dispatch asks for.
type saltExchange struct{ *exchange.Exchange }

func (s saltExchange) NewLaunch(q exchange.Question, pem string) (dispatch.Launch, error) {
	return s.Exchange.NewLaunch(q, pem)
}

// newUUID draws a version 4 UUID in canonical form.
func newUUID(random io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", err
	}
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16]), nil
}
