// Package message is what travels between masterd and a minion's executor, and
// how it is protected. Both sides import it; it does no I/O.
//
// Master to minion: a Message is signed with masterd's ed25519 key (pinned on
// the minion), then sealed to the target's accepted Salt RSA key, so that
// neither another minion, nor the job cache, nor the bus learns its body, and
// nobody but masterd can make one. Sealing alone authenticates nobody.
//
// Minion to master: an Answer carries a MAC under a result key that masterd
// derives for one request on one target and instance, and hands over inside
// the sealed body. The key is in no answer and in no file of the minion.
package message
