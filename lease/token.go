package lease

import "strconv"

// Token is a fencing token. Tokens of one name strictly increase in grant order, over release, expiry and restart of the
// backend, and stay below 2^53, so that every language and every store can compare them as plain numbers.
//
// The storage that a lease guards should keep the highest token it has seen and refuse a write that carries a lower one. An
// equal token is the same holder writing again and must be accepted.
type Token uint64

// MaxToken is the highest token that a backend may grant: the largest integer that a double holds exactly.
const MaxToken Token = 1<<53 - 1

// String returns the token in decimal.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }
