// Package saltreq speaks to the Salt master's request channel (ret_port, 4506)
// and does two things there: it publishes one fixed function of ours to one
// minion, and it fetches the accepted key of one minion. There is no way to
// make it send anything else: functions are a closed type, the target is a
// list of one literal ID, and the load is encoded field by field in load.go.
//
// # What an answer is worth
//
// Publish never says «failed». It says one of four things, and the difference
// between them is the whole point of this package:
//
//   - NotAttempted: no byte of the request could have left this process. The
//     master doesn't know of it.
//   - NotSent: the master itself answered that it sent nothing: the target
//     matched no accepted key, or the login was refused.
//   - Sent: the master answered our JID and exactly our target.
//   - Unknown: everything else. A lost connection, a deadline, an answer that
//     we don't understand: the request may be running, or may still sit in a
//     queue of the master and run later.
//
// ClearFuncs.publish in salt/master.py (read in 3006.29, 3007.16 and 3008.4)
// returns `jid: nil` from one place only, before a JID is prepared, a load is
// stored or a publication is made, and only with order_masters off (saltconfig
// refuses a master that has it on). AuthenticationError and AuthorizationError
// are returned before that as well. "Master failed to assign jid" and a
// missing returner are also answered before anything is sent, but as a bare
// string in a shape that a later Salt may use for something else: Unknown.
// A failure inside Salt's own matching (a key folder that can't be read for a
// moment) is answered like an unknown target. So NotSent proves that nothing
// was sent, and does not prove that the target has no key.
//
// # Whom the key is given to
//
// Port 4506 authenticates no server, so before the login key is written, the
// kernel is asked whose the other end is: the LISTEN row of /proc/net/tcp
// before connecting, and, after the ZMTP handshake, the row of the very socket
// that accepted our connection. That socket must have an inode (an accepted
// connection that still waits in a backlog shows uid 0 and inode 0) and belong
// to root or to the master's user. The second check has no race: the socket
// looked at is the socket that the key is then written to, and its owner can't
// change. What remains: a process of root or of the master's user itself, a
// socket that such a process handed to somebody else, and a /proc that lies.
// A master in another network namespace can't be seen and is refused.
//
// # go-zeromq/zmq4
//
// Only channel.go imports it, and only its connection (Open, SendMsg,
// RecvMsg), not its sockets: a zmq4 socket reads in goroutines of its own,
// where a panic can't be recovered, dials again by itself, ignores its own
// timeout in Recv and hands an abandoned answer to the next request. Here one
// connection carries one request, in the caller's goroutine, and every byte
// from the peer passes frameGuard first, since a frame header with an absurd
// size makes zmq4 allocate it.
package saltreq
