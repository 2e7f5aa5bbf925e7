package lab

// DieWithParent is how processes of the tests are tied to them.
var DieWithParent = dieWithParent
