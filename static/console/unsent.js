// A person asked to sign in has sent nothing: what they typed is kept for the page they return to. Not deferred: however
// fast they are, this comes first.
"use strict";
delete sessionStorage.sent;
