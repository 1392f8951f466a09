// A person asked to sign in has sent nothing: what they typed is kept for the page they return to.
"use strict";
delete sessionStorage.sent;
