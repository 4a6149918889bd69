package saltreq

// Outcome is what is known of a publish afterwards.
type Outcome uint8

// See the package comment for what each of them proves.
const (
	// NotAttempted: no byte of the request could have left this process.
	NotAttempted Outcome = iota + 1
	// NotSent: the master answered that it sent nothing.
	NotSent
	// Sent: the master answered our JID and exactly our target.
	Sent
	// Unknown: the request may have been sent, or may be sent later.
	Unknown
)

// String gives a stable word for logs and metrics.
func (o Outcome) String() string {
	switch o {
	case NotAttempted:
		return "not_attempted"
	case NotSent:
		return "not_sent"
	case Sent:
		return "sent"
	case Unknown:
		return "unknown"
	}
	return "invalid"
}

// Reason says why an outcome isn't Sent. It is a closed list of stable words
// for logs, metrics and hints; only Outcome decides what may be done next.
type Reason string

// Reasons of NotAttempted.
const (
	ReasonRequest   Reason = "bad_request"      // what we were asked to publish has the wrong shape
	ReasonConnect   Reason = "cannot_connect"   // nobody listens, or no connection within the deadline
	ReasonListener  Reason = "listener_foreign" // the other end isn't the master's
	ReasonHandshake Reason = "handshake"        // the other end doesn't speak ZMTP as a master does
	ReasonKeyFile   Reason = "key_file"         // the login key can't be read, or isn't safe
	ReasonCancelled Reason = "cancelled"        // the deadline or the caller came first
)

// Reasons of NotSent.
const (
	ReasonTargetUnmatched Reason = "target_unmatched"
	ReasonAuthentication  Reason = "authentication"
	ReasonAuthorization   Reason = "authorization"
)

// Reasons of Unknown.
const (
	ReasonTimeout        Reason = "timeout"        // no answer within the deadline
	ReasonConnection     Reason = "connection"     // the connection failed after the first byte
	ReasonOtherJID       Reason = "other_jid"      // an answer to another publish
	ReasonOtherMinions   Reason = "other_minions"  // not exactly our target
	ReasonMasterError    Reason = "master_error"   // an error of the master that proves nothing
	ReasonUnintelligible Reason = "unintelligible" // an answer of another shape
)
