// Package numbering knows which country a telephone number belongs to, and says whether a list of destinations takes a number or a SIP URI. The
// numbering plans are those of libphonenumber (github.com/nyaruka/phonenumbers): this is the only package that imports it.
package numbering
