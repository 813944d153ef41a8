/* grammar_format.c: JSON Schema's `format` as regular expressions (text/grammar_regex.c), after RFC 3339, 4122, 5321, 1123, 3986, 4291 and ISO
 * 8601. Each accepts a part of what its standard does, the part that every checker agrees on: no leap seconds, no quoted local parts of mail
 * addresses, no years before 0001, no address longer than 2,083 characters (which is what generated schemas allow). */
#include "base/size.h"
#include "text/grammar_priv.h"

#define YEAR      "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
#define LEAP_YEAR "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][48]|[2468]0|[13579][26])00)"
#define DATE                                                                                                                   \
    "(" YEAR                                                                                                                   \
    "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|" LEAP_YEAR      \
    "-02-29)"
#define TIME  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4  OCTET "(\\." OCTET "){3}"
#define H16   "[0-9a-fA-F]{1,4}"
#define PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define WHOLE "(0|[1-9][0-9]{0,8})"
#define CLOCK "T(" WHOLE "H(" WHOLE "M(" WHOLE "S)?)?|" WHOLE "M(" WHOLE "S)?|" WHOLE "S)"

static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"duration",
     "^P(" WHOLE "W|(" WHOLE "Y(" WHOLE "M(" WHOLE "D)?)?|" WHOLE "M(" WHOLE "D)?|" WHOLE "D)(" CLOCK ")?|" CLOCK ")$"},
    {"uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
    {"email", "^[a-zA-Z0-9_%+-]{1,32}(\\.[a-zA-Z0-9_%+-]{1,15}){0,2}@(" LABEL "\\.){1,3}[a-zA-Z]{2,24}$"},
    {"hostname", "^" LABEL "(\\." LABEL "){0,3}$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^((" H16 ":){7}" H16 "|(" H16 ":){1,6}:" H16 "|(" H16 ":){1,5}(:" H16 "){2}|(" H16 ":){1,4}(:" H16 "){3}|(" H16
             ":){1,3}(:" H16 "){4}|(" H16 ":){1,2}(:" H16 "){5}|" H16 ":(:" H16 "){6}|:((:" H16 "){1,7}|:)|(" H16 ":){1,7}:)$"},
    {"uri", "^[a-zA-Z][a-zA-Z0-9+.-]{0,20}://" LABEL "(\\." LABEL "){0,3}(:[1-9][0-9]{0,3})?(/" PCHAR "{0,100}){0,5}(\\?(" PCHAR
            "|[/?]){0,60})?(#(" PCHAR "|[/?]){0,20})?$"},
};

const char *grammar__format_regex(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (str_eqz(name, formats[i].name))
            return formats[i].regex;
    return NULL;
}

const char *grammar__format_names(void)
{
    return "date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri";
}
