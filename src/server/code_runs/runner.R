# Runs code in one R that stays. Orders come one a line: a word, the mark of the run, and what belongs to it in base64. What
# the code writes goes out as it is, also what programs that it starts write; what this program says stands between two
# letters 0x1e, with the mark behind the first. Needs nothing but R as it is installed, and `cat`.
local({
    digits <- c(LETTERS, letters, 0:9, "+", "/")
    largest <- 1048576L
    # Programs that the code starts read nothing of the orders. Ctrl-C is for the code alone.
    orders <- pipe("trap '' INT; exec cat <&9 2>/dev/null", "rb")
    now <- new.env()
    now$mark <- ""
    now$devices <- integer()

    unpack <- function(text) {
        at <- match(strsplit(sub("=+$", "", text), "")[[1L]], digits) - 1L
        if (!length(at)) return("")
        short <- (4L - length(at) %% 4L) %% 4L
        four <- matrix(c(at, rep(0L, short)), 4L)
        three <- rbind(
            four[1L, ] * 4L + four[2L, ] %/% 16L,
            (four[2L, ] %% 16L) * 16L + four[3L, ] %/% 4L,
            (four[3L, ] %% 4L) * 64L + four[4L, ]
        )
        bytes <- as.raw(three)
        text <- rawToChar(bytes[seq_len(length(bytes) - short)])
        Encoding(text) <- "UTF-8"
        text
    }

    pack <- function(bytes) {
        short <- (3L - length(bytes) %% 3L) %% 3L
        three <- matrix(c(as.integer(bytes), rep(0L, short)), 3L)
        four <- rbind(
            three[1L, ] %/% 4L,
            (three[1L, ] %% 4L) * 16L + three[2L, ] %/% 16L,
            (three[2L, ] %% 16L) * 4L + three[3L, ] %/% 64L,
            three[3L, ] %% 64L
        )
        text <- digits[four + 1L]
        if (short) text[length(text) - seq_len(short) + 1L] <- "="
        paste(text, collapse = "")
    }

    say <- function(what, to = stdout()) {
        # What the code has led elsewhere comes back.
        while (sink.number() > 0L) sink()
        if (sink.number(type = "message") != 2L) sink(type = "message")
        cat("\036", now$mark, what, "\036", sep = "", file = to)
        flush(to)
    }

    order <- function() {
        line <- readLines(orders, 1L, warn = FALSE)
        if (!length(line)) quit("no", runLast = FALSE)
        parts <- strsplit(line, " ", fixed = TRUE)[[1L]]
        list(word = parts[1L], mark = parts[2L], text = if (length(parts) > 2L) unpack(parts[3L]) else "")
    }

    ask <- function(prompt = "") {
        cat(prompt)
        say("A")
        repeat {
            got <- order()
            # Ctrl-C is noticed here: the line that it comes with only ends the wait.
            Sys.sleep(0)
            if (got$word == "input") return(sub("\n$", "", got$text))
        }
    }

    show_media <- function(kind, data) {
        if (is.character(data)) data <- charToRaw(enc2utf8(paste(data, collapse = "\n")))
        if (length(data) > largest) {
            cat(kind, " of ", length(data), " bytes is too large to be shown\n", sep = "", file = stderr())
        } else if (length(data)) {
            say(paste0("M", kind, ";", pack(data)))
        }
        invisible()
    }

    # Pictures are files of this directory until the run that drew them is over.
    pictures <- tempfile("pictures")
    dir.create(pictures)
    options(warn = 1L, device = function(...) {
        file <- file.path(pictures, paste0(length(now$devices) + 1L, "-%04d.png"))
        tryCatch(
            grDevices::png(file, width = 800, height = 600, res = 96),
            error = function(wrong) grDevices::pdf(NULL)
        )
        now$devices <- c(now$devices, grDevices::dev.cur())
    })

    show_pictures <- function() {
        for (device in now$devices) {
            if (device %in% grDevices::dev.list()) grDevices::dev.off(device)
        }
        now$devices <- integer()
        files <- sort(list.files(pictures, full.names = TRUE))
        for (file in files) {
            size <- file.info(file)$size
            if (!is.na(size) && size > 0) show_media("image/png", readBin(file, "raw", size))
        }
        unlink(files)
    }

    # The steps of this program are none of the code's.
    is_own <- function(call) is.null(call) || identical(call[[1L]], quote(eval))

    told <- function(wrong) {
        call <- conditionCall(wrong)
        where <- if (is_own(call)) ": " else paste0(" in ", deparse(call, nlines = 1L)[1L], " : ")
        cat("Error", where, conditionMessage(wrong), "\n", sep = "", file = stderr())
        1L
    }

    warned <- function(warning) {
        if (is_own(conditionCall(warning))) {
            cat("Warning: ", conditionMessage(warning), "\n", sep = "", file = stderr())
            invokeRestart("muffleWarning")
        }
    }

    steps <- function(code) {
        tryCatch(
            parse(text = code, keep.source = FALSE, encoding = "UTF-8"),
            error = function(wrong) stop(conditionMessage(wrong), call. = FALSE)
        )
    }

    run <- function(code) {
        # One that came too late was for the run before.
        tryCatch(allowInterrupts(Sys.sleep(0)), interrupt = function(late) NULL)
        result <- tryCatch(
            allowInterrupts(withRestarts({
                for (step in as.list(steps(code))) withCallingHandlers({
                    value <- withVisible(eval(step, globalenv()))
                    if (value$visible) print(value$value)
                }, warning = warned)
                show_pictures()
                0L
            }, abort = function() 1L)),
            interrupt = function(stopped) 130L,
            error = told
        )
        # Where it broke off, pictures of it are left.
        tryCatch(show_pictures(), error = told)
        say("E", stderr())
        say(paste0("E", result))
    }

    complete <- function(text) {
        found <- tryCatch({
            line <- sub("^.*\n", "", text)
            utils:::.assignLinebuffer(line)
            utils:::.assignEnd(nchar(line))
            utils:::.guessTokenFromLine()
            utils:::.completeToken()
            utils:::.retrieveCompletions()
        }, error = function(wrong) character())
        say(paste0("C", paste(found[seq_len(min(length(found), 200L))], collapse = "\n")))
    }

    attach(list(readline = ask, show_media = show_media), name = "fardel", warn.conflicts = FALSE)
    Sys.unsetenv("FARDEL_RUNNER")
    suspendInterrupts(repeat {
        got <- order()
        now$mark <- got$mark
        switch(got$word, run = run(got$text), complete = complete(got$text))
    })
}, envir = new.env(parent = baseenv()))
